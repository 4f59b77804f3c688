"""Make batch scripts from the templates, which are the files of slurm/ in the sources.

They work as they are in a clone. What is written for a user differs in its options, and holds the
lines of slurm/env/ that it would source.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wagma.slurm.plan import array_tasks
from wagma.units import parse_limit

MPIS = ("mpich", "openmpi", "intel", "cray")
LAUNCHERS = ("srun", "mpiexec")
EXAMPLE = "train.py"

_SOURCE = re.compile(r"^source slurm/env/\w+\.sh$", re.MULTILINE)
_SRUN = re.compile(r"^ranks=\(srun .*?\)\n(?:tell=USR2\n)?", re.MULTILINE | re.DOTALL)
_MPIEXEC = '# ranks=("${MPIEXEC[@]}") tell=$MPIEXEC_SIGNAL\n'
_ASKED = {"job-name": "name", "ntasks-per-node": "tasks-per-node"}  # as init calls them
_OF_MPI = re.compile(r"MPI_TYPE=\$\{MPI_TYPE:-(\w+)\}")


@dataclass(frozen=True)
class Choice:
    """Hold what a user asks for; None: as in the template."""

    options: Mapping[str, int | str | None]  # of `#SBATCH` lines, by their long names
    signal_s: int | None = None  # seconds of the signal before the time limit
    mpi: str = "mpich"  # one of `MPIS`
    launcher: str = "srun"  # one of `LAUNCHERS`
    script: str | None = None  # the training script
    venv: str | None = None  # the environment's folder


def folder() -> Path:
    """Return the folder of the templates: beside this file, or in the sources."""
    here = Path(__file__).resolve().parent
    return next(
        (path for path in (here / "templates", here.parents[1] / "slurm") if path.is_dir()),
        here / "templates",
    )


def names() -> list[str]:
    """Return the names of the templates."""
    return sorted(path.stem for path in folder().glob("*.sbatch"))


def fill(name: str, choice: Choice, output: Path) -> dict[Path, str]:
    """Return the files to write: the script, and the example that it runs where none is given.

    Raises:
        ValueError: the template has no place for what is asked for.
    """
    text = (folder() / f"{name}.sbatch").read_text()
    for option, value in choice.options.items():
        if value is not None:
            text = _with_option(name, text, option, str(value))
    if choice.signal_s is not None:
        text, count = re.subn(r"(?m)^(#SBATCH --signal=\S+@)\d+", rf"\g<1>{choice.signal_s}", text)
        if not count:
            raise ValueError(f"--signal-seconds: {name} has no signal: it does not train")
    text = _with_launcher(name, text, choice)
    text = _with_environment(text, choice)
    text = text.replace(f"slurm/{name}.sbatch", shlex.quote(str(output)))
    files = {output: text}
    example = output.with_name(EXAMPLE)
    if "slurm/train.py" in text:
        files[output] = text.replace("slurm/train.py", shlex.quote(choice.script or str(example)))
        if choice.script is None:
            files[example] = (folder() / EXAMPLE).read_text()
    elif choice.script is not None:
        raise ValueError(f"--script: {name} runs no script")
    return files


def _with_option(name: str, text: str, option: str, value: str) -> str:
    if option == "time" and parse_limit(value) is None:
        raise ValueError(f"--time {value}: write minutes, 4:00:00 or 2-0 (days-hours)")
    if option == "array" and array_tasks(value) is None:
        raise ValueError(f"--array {value}: write 0-9, 1,3,5 or 0-99%8")
    asked = _ASKED.get(option, option)
    if re.search(r"[\s#'\"\\]", value) or not value:
        raise ValueError(f"--{asked} {value!r}: a value without blanks and quotes is needed")
    if option == "job-name" and "/" in value:
        raise ValueError(f"--name {value}: it names files and folders, so that it has no /")

    def changed(found: re.Match[str]) -> str:
        start = f"#SBATCH --{option}={value}"
        comment = found[3]
        if comment and option == "job-name":
            comment = comment.replace(f"checkpoints/{found[2]}", f"checkpoints/{value}")
        return f"{start:<{len(found[1])}}{comment}" if comment else start

    line = re.compile(rf"^(#SBATCH --{option}=(\S+) *)(#.*)?$", re.MULTILINE)
    # One srun starts the ranks of all groups: with as many cores for each.
    text, count = line.subn(changed, text, count=0 if option == "cpus-per-task" else 1)
    if count:
        return text
    if option in ("partition", "account"):
        first = re.compile(r"^#SBATCH --job-name=.*\n", re.MULTILINE)
        return first.sub(lambda found: f"{found[0]}#SBATCH --{option}={value}\n", text, count=1)
    others = ", ".join(
        other
        for other in names()
        if f"#SBATCH --{option}=" in (folder() / f"{other}.sbatch").read_text()
    )
    raise ValueError(f"{name} has no --{asked}: templates that have it are {others}")


def _with_launcher(name: str, text: str, choice: Choice) -> str:
    if choice.launcher == "srun":
        return text
    if choice.mpi == "cray":
        raise ValueError("--launcher mpiexec: Cray MPICH has none; take srun")
    if _MPIEXEC not in text:
        others = ", ".join(
            other for other in names() if _MPIEXEC in (folder() / f"{other}.sbatch").read_text()
        )
        raise ValueError(f"--launcher mpiexec: {name} needs srun; {others} can do with mpiexec")
    text = _SRUN.sub("", text, count=1)
    return text.replace(_MPIEXEC, _MPIEXEC.removeprefix("# "))


def _with_environment(text: str, choice: Choice) -> str:
    """Put the lines of the environment's file in the place of the line that sources it."""
    lines = (folder() / f"env/{choice.mpi}.sh").read_text()
    if found := _OF_MPI.search(lines):  # of a container, outside of which nothing is sourced
        text = text.replace("${MPI_TYPE:-pmi2}", f"${{MPI_TYPE:-{found[1]}}}")
    body = lines.partition("\n\n")[2].rstrip("\n")
    if choice.venv is not None:
        body = body.replace("${VENV:-.venv}", choice.venv)
    return _SOURCE.sub(lambda _: body, text)
