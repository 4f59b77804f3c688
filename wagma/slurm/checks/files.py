"""Check that the files are there which a script sources and runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wagma.slurm.checks.findings import Finding, Job
from wagma.slurm.script import program_file
from wagma.slurm.shell import Command

__all__ = ["missing"]

_UNKNOWN = re.compile(r"[$~*?`]")  # in names that only the job knows


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
