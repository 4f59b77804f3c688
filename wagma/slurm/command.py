"""Write batch scripts for Slurm from templates, check them, explain them.

    python -m wagma slurm init --nodes 2 --tasks-per-node 16 --time 4:00:00  # train-cpu.sbatch
    python -m wagma slurm lint train-cpu.sbatch     # mistakes and remedies; exit status 1 if any
    python -m wagma slurm explain train-cpu.sbatch  # what would run where

Slurm need not be there. docs/slurm.md says which templates there are, and how a job survives its
time limit.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch.options import integer, reader
from wagma.slurm.script import Script, read
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.slurm.checks import Finding

SUMMARY = "write a batch script for Slurm, find its mistakes, explain it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be done with batch scripts to the command's parser."""
    kinds = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    _add_init(kinds)
    lint = kinds.add_parser(
        "lint",
        help="find the classic mistakes in a script, each with its remedy",
        description="Prints the mistakes in batch scripts, each with its line and its remedy. The "
        "exit status is 1 if there are any, and 2 if a file cannot be read.",
    )
    lint.add_argument("files", type=Path, nargs="+", metavar="FILE", help="batch script")
    lint.add_argument(
        "--checkpoint-seconds",
        type=reader(_seconds),
        metavar="SECONDS",
        help="seconds that a checkpoint takes (default: what a comment in the script says, such as "
        "'# checkpoint-seconds: 90')",
    )
    lint.add_argument("--json", action="store_true", help="print the findings as JSON")
    lint.set_defaults(run=_lint, parser=lint)
    explain = kinds.add_parser(
        "explain",
        help="explain what a script would run where, and what happens at its time limit",
        description="Says what a batch script would run where. Slurm is not asked.",
    )
    explain.add_argument("file", type=Path, metavar="FILE", help="batch script")
    explain.set_defaults(run=_explain, parser=explain)


def _add_init(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from wagma.slurm.templates import LAUNCHERS, MPIS, names

    init = kinds.add_parser(
        "init",
        help="write a script from a template",
        description="Writes a batch script that works as it is once its numbered lines are set.",
    )
    add = init.add_argument
    add("template", nargs="?", default="train-cpu", choices=names(), help="(default: train-cpu)")
    add("-o", "--output", type=Path, metavar="FILE", help="(default: TEMPLATE.sbatch)")
    add("--nodes", type=integer(1), metavar="N", help="(default: the template's)")
    add("--tasks-per-node", type=integer(1), metavar="N", help="ranks per node")
    add("--cpus-per-task", type=integer(1), metavar="N", help="cores per rank")
    add("--gpus-per-task", type=integer(1), metavar="N", help="GPUs per rank (train-gpu alone)")
    add("--time", metavar="LIMIT", help="time limit, such as 30, 4:00:00 or 2-0 (days-hours)")
    add(
        "--signal-seconds",
        type=integer(1),
        metavar="N",
        help="seconds before the limit at which the signal comes",
    )
    add("--array", metavar="TASKS", help="tasks of a job array, such as 0-9 or 0-99%%8")
    add("--name", metavar="NAME", help="name of the job, and of its folder of checkpoints")
    add("--partition", metavar="NAME", help="of the job (default: the site's)")
    add("--account", metavar="NAME", help="that pays for the job (default: yours)")
    add("--mpi", choices=MPIS, default="mpich", help="(default: mpich)")
    add("--launcher", choices=LAUNCHERS, default="srun", help="(default: srun)")
    add(
        "--script",
        metavar="FILE",
        help="your training script (default: an example, train.py, is written beside the script)",
    )
    add("--venv", metavar="DIR", help="environment with wagma (default: .venv)")
    add("--force", action="store_true", help="overwrite existing files")
    init.set_defaults(run=_init, parser=init)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is no number of seconds")
    return seconds


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Refuse a command line without what to do: the parsers of `init` and so on run."""
    del arguments
    parser.error("nothing to do")


def _read(path: Path, parser: argparse.ArgumentParser) -> Script:
    try:
        return read(path)
    except OSError as error:
        parser.error(f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))


def _lint(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from wagma.slurm.checks import lint

    scripts = [_read(path, parser) for path in arguments.files]
    found = [
        (script.path, finding)
        for script in scripts
        for finding in lint(script, arguments.checkpoint_seconds)
    ]
    if arguments.json:
        rows = [{"file": str(path), **asdict(finding)} for path, finding in found]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 1 if found else 0
    _tell_findings(found)
    files = plural(len(scripts), "file")
    sys.stdout.write(f"{files}: {plural(len(found), 'mistake') if found else 'nothing found'}\n")
    return 1 if found else 0


def _explain(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from wagma.slurm.explain import explain

    sys.stdout.write(explain(_read(arguments.file, parser)))
    return 0


def _init(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from wagma.slurm.checks import lint
    from wagma.slurm.templates import Choice, fill

    output: Path = arguments.output or Path(f"{arguments.template}.sbatch")
    choice = Choice(
        options={
            "nodes": arguments.nodes,
            "ntasks-per-node": arguments.tasks_per_node,
            "cpus-per-task": arguments.cpus_per_task,
            "gpus-per-task": arguments.gpus_per_task,
            "time": arguments.time,
            "array": arguments.array,
            "job-name": arguments.name,
            "partition": arguments.partition,
            "account": arguments.account,
        },
        signal_s=arguments.signal_seconds,
        mpi=arguments.mpi,
        launcher=arguments.launcher,
        script=arguments.script,
        venv=arguments.venv,
    )
    try:
        files = fill(arguments.template, choice, output)
    except ValueError as error:
        parser.error(str(error))
    there = [path for path, text in files.items() if path.exists() and _differs(path, text)]
    if there and not arguments.force:
        parser.error(f"{', '.join(map(str, there))} would be overwritten: --force, or another -o")
    from wagma.launch.files import write_file

    for path, text in files.items():
        try:
            write_file(path, text)
        except OSError as error:
            parser.error(f"{path} cannot be written: {error.strerror}")
    sys.stdout.write(
        f"{', '.join(map(str, files))} written. Check the numbered lines, then: "
        f"sbatch {shlex.quote(str(output))}\n"
    )
    _tell_missing(files[output], choice.script)
    found = [one for one in lint(read(output)) if one.code != "no-file"]
    _tell_findings([(output, one) for one in found])
    return 0


def _tell_missing(text: str, program: str | None) -> None:
    """Print which files the job will look for in vain, if it is submitted from this folder."""
    environment = re.search(r'^source "(?:\$\{VENV:-)?([^"$}]+)\}?(/bin/activate)"', text, re.M)
    wanted = {"--venv": environment and "".join(environment.groups()), "--script": program}
    for option, path in wanted.items():
        if path is not None and not Path(path).exists():
            sys.stdout.write(f"{path} is not there, seen from this folder: see {option}\n")


def _tell_findings(found: Sequence[tuple[Path, Finding]]) -> None:
    for path, one in found:
        sys.stdout.write(f"{path}:{one.line}: {one.text} [{one.code}]\n    -> {one.remedy}\n")


def _differs(path: Path, text: str) -> bool:
    """Return whether writing would change what is there; a second script there is no harm."""
    try:
        return path.suffix == ".sbatch" or path.read_text() != text
    except (OSError, UnicodeDecodeError):
        return True
