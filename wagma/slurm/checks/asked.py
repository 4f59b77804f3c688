"""Check the file, what it asks Slurm for, and that the files are there which it names."""

import re
from collections.abc import Iterator

from wagma.slurm.checks.findings import Finding, Job
from wagma.slurm.plan import SIGNAL_EARLY_S, array_tasks, time_limit
from wagma.slurm.script import program_file
from wagma.slurm.shell import Command
from wagma.units import duration_text, parse_limit

_UNKNOWN = re.compile(r"[$~*?`]")  # in names that only the job knows
_BINDINGS = {"gpus-per-task", "gpu-bind", "ntasks-per-gpu", "tres-per-task"}
_NODES = re.compile(r"\d+[km]?(?:-\d+[km]?|[,:-][\d,:-]+)?", re.IGNORECASE)
_COUNTS = {"ntasks", "cpus-per-task", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket"}


def file(job: Job) -> Iterator[Finding]:
    """Find lines that Slurm or bash do not read as they were meant."""
    script = job.script
    if script.has_crlf:
        yield Finding(
            1,
            "crlf",
            "lines end with CR LF, as on Windows: sbatch refuses the file",
            f"sed -i 's/\\r$//' {script.path}",
        )
    if not script.text.startswith("#!"):
        yield Finding(
            1, "shebang", "the first line names no interpreter", "begin the file with #!/bin/bash"
        )
    for line in script.ignored:
        yield Finding(
            line,
            "late-option",
            "an option behind the first command, which Slurm ignores",
            "move the line up, above everything that is no comment",
        )
    for line, text in enumerate(script.text.splitlines(), 1):
        if re.match(r"#\s+SBATCH\s|#sbatch\s|#SBATCH-|\s+#SBATCH\s", text):
            yield Finding(
                line,
                "no-option",
                f"Slurm takes this line for a comment: {text.strip()[:40]}",
                "write #SBATCH in capitals at the line's beginning, and a space behind it; or "
                "delete the line",
            )


def values(job: Job) -> Iterator[Finding]:
    """Check that Slurm takes the numbers of nodes, ranks and cores, the array and the limit."""
    found = [(one.line, one.name, one.value) for one in job.script.directives]
    for launch in job.script.launches:
        if launch.kind == "srun":
            found += [(launch.line, *one) for one in launch.options.items() if "$" not in one[1]]
    for line, name, value in found:
        if remedy := _refused(name, value):
            yield Finding(line, "bad-value", f"Slurm refuses --{name}={value}", remedy)


def _refused(name: str, value: str) -> str:
    """Return what an option may have in place of a value that Slurm refuses; "": it takes it."""
    if name in _COUNTS and not (value.isdecimal() and int(value)):
        return f"--{name}=N, a number from 1 on"
    if name == "nodes":
        numbers = [int(one) for one in re.findall(r"\d+", value)]
        is_backwards = re.fullmatch(r"\d+-\d+", value) and numbers[0] > numbers[1]
        if not _NODES.fullmatch(value) or not any(numbers) or is_backwards:
            return "--nodes=N, a number from 1 on, or --nodes=FEWEST-MOST"
    if name == "array" and array_tasks(value) is None:
        return "--array=FIRST-LAST, such as 0-9, 0-9:3 (each third), 1,4,7 or 0-99%8 (8 at once)"
    is_endless = value.lower() in ("infinite", "unlimited", "-1")
    if name == "time" and parse_limit(value) is None and not is_endless:
        return "--time=MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS, such as 4:00:00"
    return ""


def time(job: Job) -> Iterator[Finding]:
    """Check that there is a time limit, and that the signal fits into it."""
    limit = time_limit(job.options)
    if "time" not in job.options:
        yield Finding(
            job.script.last_directive,
            "no-time",
            "there is no time limit: it is the partition's, which may be minutes or days, and the "
            "job starts later than a short one",
            "#SBATCH --time=04:00:00",
        )
    elif limit and job.signal and job.signal.seconds + SIGNAL_EARLY_S >= limit:
        shorter = max(1, limit // 10)
        signal = f"#SBATCH --signal={job.options['signal'].partition('@')[0]}@{shorter}, or "
        yield Finding(
            job.script.line_of("signal"),
            "signal-at-start",
            f"the signal comes {duration_text(job.signal.seconds)} before a limit of "
            f"{duration_text(limit)}, or up to {SIGNAL_EARLY_S} s sooner: at the start, where it "
            "kills the ranks",
            (signal if shorter + SIGNAL_EARLY_S < limit else "") + "a longer --time",
        )


def array_output(job: Job) -> Iterator[Finding]:
    """Check that the tasks of an array write into files of their own."""
    if "array" not in job.options:
        return
    if (array_tasks(job.options["array"]) or (2, None))[0] < 2:
        return
    for name in ("output", "error"):
        pattern = job.options.get(name)
        if pattern is not None and not re.search(r"%\d*[aj]", pattern) and pattern != "/dev/null":
            yield Finding(
                job.script.line_of(name),
                "array-output",
                f"all tasks of the array write into one file, {pattern}",
                f"#SBATCH --{name}=%x-%A-%a.out",
            )


def gpus(job: Job) -> Iterator[Finding]:
    """Check that ranks do not all use the first GPU of a node."""
    if not any(one.gpus and (one.per_node or one.tasks) > 1 for one in job.components):
        return
    launches = [one for one in job.ranks if not one.has_torchrun]
    is_chosen = re.search(r"SLURM_LOCALID|CUDA_VISIBLE_DEVICES|LOCAL_RANK|ROCR_VISIBLE", job.code)
    if job.script.has(*_BINDINGS) or is_chosen or not launches:
        return
    for launch in launches:
        if not _BINDINGS.intersection(launch.options):
            yield Finding(
                launch.line,
                "gpu-unbound",
                "GPUs are not bound to ranks: each rank sees all of its node, and takes the first",
                "#SBATCH --gpus-per-task=1, and srun --gpus-per-task=1 --gpu-bind=per_task:1",
            )


def missing(job: Job) -> Iterator[Finding]:
    """Check that sourced files and programs are there, seen from here or from the script.

    A name that an earlier command has among its words passes: `cp train.py ...` may make the file,
    and `[ -f setup.sh ]` ask for it.
    """
    script = job.script
    has_moved = script.has("chdir")
    named: set[str] = set()
    for command in script.commands:
        has_moved = has_moved or command.words[:1] in (["cd"], ["pushd"])
        name = _file(job, command)
        if not name:
            named.update(script.expand_all(command.words))
        elif not (
            _UNKNOWN.search(name)
            or name in named
            or (has_moved and not name.startswith("/"))
            or script.find(name)
        ):
            yield Finding(
                command.line,
                "no-file",
                f"{name} is not there, seen from this folder and from the script's",
                "call sbatch in the folder from which the path leads to the file, or write the "
                "path in full",
            )


def _file(job: Job, command: Command) -> str:
    """Return the file that a command needs; "": none, or one that only the job knows."""
    words = command.words
    if words[:1] in (["source"], ["."]):
        # ${VENV:-.venv} may be set by the user.
        is_open = ":-" in "".join(words[1:])
        return "" if is_open else job.script.expand("".join(words[1:2]))
    for launch in job.script.launches:
        if launch.command is command:
            return "" if launch.container else program_file(launch.program)
    return program_file(job.script.expand_all(words))
