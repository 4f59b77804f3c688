"""Read a batch script as Slurm and bash do: options, commands, and what starts the ranks."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wagma.slurm.options import mpiexec_words, read_words
from wagma.slurm.shell import Command, code_lines, parse

_SEPARATORS = ("hetjob", "packjob")
_WRAPPERS = {"exec", "command", "nohup", "time"}
_CONTAINERS = {"apptainer", "singularity", "docker", "podman", "podman-hpc", "shifter", "ch-run"}
_MPIEXECS = {"mpiexec", "mpirun", "mpiexec.hydra", "prterun"}
_INTERPRETER = re.compile(r"(?:\S*/)?(?:python[\d.]*|bash|sh)")
# Find options of Python and of bash, alone or behind others, after which no file is run.
_NO_FILE = re.compile(r"--|-$|-[^-WX]*[mcs]")
_WITH_VALUE = "WXo"  # last letters of options of Python and of bash that take the next word
# List tools that srun starts without MPI.
_PLAIN = {
    *("hostname", "env", "printenv", "echo", "true", "sleep", "mkdir", "cp", "rm", "mv", "rsync"),
    *(
        "tar",
        "nvidia-smi",
        "lscpu",
        "numactl",
        "taskset",
        "date",
        "ls",
        "cat",
        "id",
        "df",
        "sbcast",
    ),
    *("rocm-smi", "nproc", "ulimit", "test", "touch", "ln", "chmod"),
}
_ARRAY = re.compile(r"(?s)\((.*)\)")
_WHOLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?(?::?-([^{}]*))?\})", re.ASCII)
_REDIRECTION = re.compile(r"(?:\d*|&)(?:>>?|<{1,3})(?:&\d+|&-)?(.*)", re.DOTALL)
_DEEPEST = 5


@dataclass(frozen=True)
class Directive:
    """Describe one option of a `#SBATCH` line."""

    line: int  # from 1
    component: int  # of a heterogeneous job, from 0
    name: str  # long, without dashes
    value: str  # "" where it has none


@dataclass(frozen=True)
class Launch:
    """Describe a command that starts processes on the allocation."""

    command: Command  # the command as it was found
    kind: str  # "srun", "mpiexec" or "torchrun"
    options: Mapping[str, str]  # of the launcher, by their long names
    program: Sequence[str]  # what is started: its words
    environment: Sequence[str]  # names of variables that are set for this command alone
    is_exec: bool  # whether it takes the shell's place

    @property
    def line(self) -> int:
        """Return its line, from 1."""
        return self.command.line

    @property
    def container(self) -> str:
        """Return what starts a container around the program; "": nothing does."""
        if any(name.startswith("container-image") for name in self.options):
            return "srun --container-image"
        return next((word for word in map(_name, self.program[:1]) if word in _CONTAINERS), "")

    @property
    def tool(self) -> str:
        """Return the command of wagma that is run, such as "bench"; "": it is another program."""
        words = list(self.program)
        for index, word in enumerate(words[:-1]):
            if word == "wagma" and index and words[index - 1] == "-m":
                return words[index + 1]
        return words[1] if len(words) > 1 and _name(words[0]) == "wagma" else ""

    @property
    def nested(self) -> str:
        """Return the launcher that this one starts in each task; "": none."""
        first = _name(self.program[0]) if self.program else ""
        is_wrapped = self.container or first in {"env", "timeout", "nice"}
        for word in self.program if is_wrapped else self.program[:1]:
            if _INTERPRETER.fullmatch(word):
                break
            if (name := _name(word)) in {"srun", *_MPIEXECS}:
                return name
        return ""

    @property
    def is_plain(self) -> bool:
        """Return whether the program is a tool of the system, which knows no ranks."""
        return not self.program or _name(self.program[0]) in _PLAIN

    @property
    def has_torchrun(self) -> bool:
        """Return whether torchrun starts the ranks, as this command or below it."""
        words = [self.kind, *map(_name, self.program)]
        return "torchrun" in words or "torch.distributed.run" in words


@dataclass
class Script:
    """Hold what was read of a batch script."""

    path: Path
    text: str  # of the file, lines ended by line feeds alone
    has_crlf: bool = False  # lines end as in Windows
    directives: list[Directive] = field(default_factory=list)  # options that Slurm takes
    ignored: list[int] = field(default_factory=list)  # `#SBATCH` lines that come too late, from 1
    # of the script and of the files that it sources
    commands: list[Command] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)  # commands that start ranks
    # values of the script's own variables, as written
    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    @property
    def code(self) -> str:
        """Return the text without comments."""
        return "\n".join(code_lines(self.text))

    @property
    def components(self) -> int:
        """Return how many components the job has; an ordinary job has one."""
        return 1 + max((one.component for one in self.directives), default=0)

    def options(self, component: int = 0) -> dict[str, str]:
        """Return the options of one component; the last of several alike is in force."""
        return {one.name: one.value for one in self.directives if one.component == component}

    def has(self, *names: str) -> bool:
        """Return whether any component has one of these options."""
        return any(one.name in names for one in self.directives)

    def line_of(self, name: str, otherwise: int = 1) -> int:
        """Return the line of an option, or `otherwise`."""
        lines = [one.line for one in self.directives if one.name == name]
        return lines[-1] if lines else otherwise

    @property
    def last_directive(self) -> int:
        """Return the line behind which a missing option belongs."""
        return max((one.line for one in self.directives), default=1)

    def find(self, name: str) -> Path | None:
        """Return a file that is named relative to where sbatch runs; None: it is not there.

        It looks in the current folder, beside the script, and above that.
        """
        for folder in (Path(), self.path.parent, self.path.parent.parent):
            try:
                if (folder / name).is_file():
                    return folder / name
            except OSError:
                continue
        return None

    def expand(self, word: str, depth: int = 0) -> str:
        """Return a word with the script's own variables and with defaults in their place."""
        if depth > _DEEPEST or "$" not in word:
            return word

        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            known = self.variables.get(name, found[3])
            return found[0] if known is None else self.expand(known, depth + 1)

        return _WHOLE.sub(value, word)

    def expand_all(self, words: Sequence[str], depth: int = 0) -> list[str]:
        """Return words with arrays and variables of the script in their place."""
        expanded: list[str] = []
        for word in words:
            found = _WHOLE.fullmatch(word)
            value = self.variables.get(found[1] or found[2]) if found else None
            if value is not None and depth <= _DEEPEST and (array := _ARRAY.fullmatch(value)):
                expanded += self.expand_all(_split(array[1]), depth + 1)
            else:
                expanded.append(self.expand(word))
        return expanded


def read(path: Path) -> Script:
    """Return what a file says.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text.
    """
    data = path.read_bytes()
    if b"\0" in data:
        raise ValueError(f"{path} is no text")
    text = data.decode(errors="surrogateescape")
    script = Script(path, text.replace("\r\n", "\n"), has_crlf="\r\n" in text)
    _read_directives(script)
    for command in parse(script.text):
        _take(script, command)
    return script


def _read_directives(script: Script) -> None:
    component, is_over = 0, False
    for number, line in enumerate(script.text.splitlines(), 1):
        if not line.startswith("#SBATCH"):
            is_over = is_over or bool(line.strip() and not line.startswith("#"))
            continue
        if is_over:
            script.ignored.append(number)
            continue
        try:
            words = shlex.split(line[len("#SBATCH") :], comments=True)
        except ValueError:
            words = line.split()[1:]
        if words[:1] and words[0] in _SEPARATORS:
            component += 1
            continue
        while words:
            options, rest = read_words(words)
            script.directives += [
                Directive(number, component, name, value) for name, value in options.items()
            ]
            words = rest[1:]


def _take(script: Script, command: Command) -> None:
    """Note one command: what it sets, what it sources, what it launches."""
    script.commands.append(command)
    words = command.words
    is_export = words[:1] == ["export"] or words[:2] == ["declare", "-x"]
    for assignment in command.assignments if not words else words[1:] if is_export else ():
        name, equals, value = assignment.partition("=")
        if equals:
            script.variables[name] = _without_itself(name, value)
        if is_export:
            script.exported.add(name)
    if words[:1] in (["source"], ["."]) and len(words) > 1 and _name(words[1]) != "activate":
        for sourced in _sourced(script, script.expand(words[1])):
            sourced.line = command.line
            _take(script, sourced)
    if launch := _launch(script, command):
        script.launches.append(launch)


def _without_itself(name: str, value: str) -> str:
    """Return the value of `NAME=${NAME:-default}` where NAME is not set before: the default."""
    found = re.fullmatch(rf"\$\{{{re.escape(name)}:?-([^{{}}]*)\}}", value)
    return found[1] if found else value


def _sourced(script: Script, name: str) -> list[Command]:
    """Return the commands of a file, if it is there: where sbatch runs, or beside the script."""
    file = script.find(name)
    try:
        return parse(file.read_text(errors="replace")) if file else []
    except OSError:
        return []


def program_file(words: Sequence[str]) -> str:
    """Return the file that a command runs: its first word, or a script; "": one of PATH."""
    words = without_redirections(words)
    if not words or not _INTERPRETER.fullmatch(words[0]):
        return words[0] if words and "/" in words[0] else ""
    index = 1
    while index < len(words) and words[index][:1] in ("-", "+"):
        if _NO_FILE.match(words[index]):
            return ""
        index += 2 if words[index][-1] in _WITH_VALUE else 1
    return words[index] if index < len(words) else ""


def _launch(script: Script, command: Command) -> Launch | None:
    words = without_redirections(script.expand_all(command.words))
    environment = [assignment.partition("=")[0] for assignment in command.assignments]
    is_exec = False
    while words and (words[0] in _WRAPPERS or words[0] in ("env", "timeout")):
        is_exec = is_exec or words[0] == "exec"
        wrapper, words = words[0], words[1:]
        while words and (words[0].startswith("-") or (wrapper == "env" and "=" in words[0])):
            if "=" in words[0] and wrapper == "env":
                environment.append(words[0].partition("=")[0])
            words = words[2:] if words[0] in ("-u", "-k", "-s") else words[1:]
        if wrapper == "timeout":
            words = words[1:]
    if not words:
        return None
    name = _name(words[0])
    if name == "srun":
        options, program = read_words(words[1:])
    elif name in _MPIEXECS:
        options, program = mpiexec_words(words[1:])
    elif name == "torchrun" or "torch.distributed.run" in words[:3]:
        options, program = {}, words[1:]
    else:
        return None
    kind = name if name in ("srun", "torchrun") else "mpiexec" if name in _MPIEXECS else "torchrun"
    return Launch(command, kind, options, program, environment, is_exec)


def without_redirections(words: Sequence[str]) -> list[str]:
    """Return the words that a command gets as arguments."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif found := _REDIRECTION.fullmatch(word):
            skip = not found[1] and not re.search(r"&[\d-]$", word)
        else:
            kept.append(word)
    return kept


def _split(text: str) -> list[str]:
    """Return the words of an array's text, quotes removed."""
    commands = parse(" ".join(text.split("\n")))
    return [word for one in commands for word in (*one.assignments, *one.words)]


def _name(word: str) -> str:
    return word.rpartition("/")[2]
