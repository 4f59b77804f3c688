"""Trains on handwritten digits while stragglers are injected, and compares algorithms.

At every step some ranks, drawn anew and alike on every rank, sleep for a while: the imbalance of
the paper's experiments (Sec. 5), unless --imbalance asks for another one. AllreduceSGD and WAGMA
train the same model on the same batches with the same delays, one after the other. At the end there
is a table, and a picture of accuracy over wall time and of what every rank waited. Everything in
them was measured in this run.

    mpiexec -n 4 python -m wagma demo
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wagma.demo.settings import ALGORITHMS, DELAY, Asked, Settings, default_delayed_ranks
from wagma.inject import Injector, Paper, forms, parse
from wagma.launch.agreement import refuse
from wagma.launch.options import (
    add_group_size,
    add_progress,
    add_transport,
    integer,
    is_shown,
)
from wagma.launch.packages import missing

if TYPE_CHECKING:
    from mpi4py import MPI
    from rich.console import Console

__all__ = ["SUMMARY", "add_arguments", "refuse", "run"]

SUMMARY = "train with injected stragglers, synchronously and with wait-avoiding averaging"

# Snapshots of the model in a training, about.
SNAPSHOTS = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the demo's options to its parser."""
    parser.epilog = (
        "SPEC is none, or one or more of the following, separated by commas; times are in\n"
        "seconds, ranks and steps count from 0:\n  " + "\n  ".join(forms())
    )
    add = parser.add_argument
    add(
        "--algorithms",
        type=_algorithms,
        default=tuple(ALGORITHMS),
        metavar="NAMES",
        help="comma-separated, in the order in which they run (default: allreduce,wagma)",
    )
    add(
        "--delay",
        type=_number(0.0, 60.0),
        metavar="SECONDS",
        help=f"sleep of a delayed rank (default: {DELAY})",
    )
    add(
        "--delayed-ranks",
        type=integer(0),
        metavar="N",
        help="ranks delayed at every step (default: 2, with fewer than 3 ranks all but one)",
    )
    add(
        "--imbalance",
        metavar="SPEC",
        help="other delays, and faults, instead of the last two, see below",
    )
    add(
        "--steps",
        type=integer(1),
        default=300,
        metavar="N",
        help="steps of every rank (default: %(default)s)",
    )
    add_group_size(add)
    add(
        "--sync-period",
        type=integer(1),
        default=10,
        metavar="TAU",
        help="of WAGMA: steps from one average over all ranks to the next (default: %(default)s)",
    )
    add(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="of model, batches and imbalance (default: %(default)s)",
    )
    add_transport(add)
    add(
        "--out",
        type=Path,
        default=Path("out/demo.png"),
        metavar="FILE",
        help="the picture, a PNG (default: %(default)s)",
    )
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="write every rank's raw step times, from which the table is computed",
    )
    add_progress(add, "a live line")


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in ALGORITHMS:
            raise argparse.ArgumentTypeError(
                f"unknown algorithm {name!r}: choose from {', '.join(ALGORITHMS)}"
            )
    if len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} names an algorithm twice")
    return names


def _number(lowest: float, highest: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not lowest <= value <= highest:  # also refuses NaN
            raise argparse.ArgumentTypeError(f"{text} is not from {lowest:g} to {highest:g}")
        return value

    return number


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Runs the demo on the ranks of COMM_WORLD; returns the exit status."""
    from wagma.launch.together import on_world

    asked = Asked(**{field.name: getattr(arguments, field.name) for field in fields(Asked)})
    return on_world(parser, lambda comm: _demo(comm, asked, arguments.progress))


def _demo(comm: MPI.Intracomm, asked: Asked, progress: str) -> int:
    from wagma.benchmarks.start import one_node
    from wagma.launch.agreement import agreed
    from wagma.launch.ranks import meet
    from wagma.launch.together import check_transport, everywhere

    # MPI first: ranks meet in its initialisation, and spin there while others import.
    asked = agreed(comm, asked)
    together = one_node(comm)
    used = os.environ.get("WAGMA_TRANSPORT", asked.transport)
    everywhere(comm, lambda: _check(asked, comm.size))
    everywhere(comm, lambda: check_transport(used, one_node=together))
    everywhere(comm, lambda: import_module("torch"))  # it may be there, and yet fail on a rank
    import torch
    from rich.console import Console

    # By one rank for all: files are written and read, and may not be the same everywhere.
    imbalance = comm.bcast(
        everywhere(comm, lambda: _prepare(asked, comm.size) if comm.rank == 0 else None)
    )
    settings = _settings(asked, comm.size, imbalance)
    torch.set_num_threads(1)  # one core per rank, as on a machine that is fully used
    shown = is_shown(progress)
    console = Console(
        stderr=True,
        quiet=comm.rank != 0,
        force_terminal=shown or None,
        highlight=False,
        soft_wrap=True,
    )
    record = _train_all(comm, settings, imbalance, console, shown)
    if comm.rank == 0:
        _report(record, asked)
    meet(comm)
    return 0


def _check(asked: Asked, size: int) -> None:
    """What can be wrong with the arguments for this number of ranks, and with two of them.

    Raises:
        ImportError: a package is missing.
        ValueError: an argument is wrong.
    """
    if said := missing("matplotlib", "rich", "sklearn", "torch"):
        raise ImportError(said)
    delayed = asked.delayed_ranks
    for option, value in (("--delayed-ranks", delayed), ("--group-size", asked.group_size)):
        if value is not None and value > size:
            raise ValueError(
                f"argument {option}: {value} is more than the {size} ranks of this run"
            )
    for option, given in (("--delay", asked.delay), ("--delayed-ranks", delayed)):
        if given is not None and asked.imbalance is not None:
            raise ValueError(f"argument --imbalance: not allowed with argument {option}")


def _prepare(asked: Asked, size: int) -> Injector:
    """The imbalance. Whether the results can be written is found out here, before the training.

    Raises:
        ValueError: an argument is wrong, or they cannot.
    """
    try:
        imbalance = _imbalance(asked, size)
    except (OSError, ValueError) as error:
        raise ValueError(f"argument --imbalance: {error}") from error
    for option, path in (("--out", asked.out), ("--json", asked.json)):
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab"):
                pass
        except OSError as error:
            raise ValueError(f"argument {option}: cannot write {path}: {error.strerror}") from error
    return imbalance


def _imbalance(asked: Asked, size: int) -> Injector:
    if asked.imbalance is not None:
        return parse(asked.imbalance, size, asked.seed)
    delayed, delay = asked.delayed_ranks, asked.delay
    pattern = Paper(
        size,
        delayed_ranks=default_delayed_ranks(size) if delayed is None else delayed,
        seconds=DELAY if delay is None else delay,
        seed=asked.seed,
    )
    return Injector(size, (pattern,))


def _settings(asked: Asked, size: int, imbalance: Injector) -> Settings:
    from wagma.training.strategies.wagma import default_group_size

    group = asked.group_size
    return Settings(
        algorithms=asked.algorithms,
        imbalance=str(imbalance),
        steps=asked.steps,
        group_size=default_group_size(size) if group is None else group,
        sync_period=asked.sync_period,
        seed=asked.seed,
        transport=asked.transport,
        snapshot_every=math.ceil(asked.steps / SNAPSHOTS),
    )


def _train_all(
    comm: MPI.Intracomm, settings: Settings, imbalance: Injector, console: Console, shown: bool
) -> dict[str, Any]:
    from wagma.demo.data import load
    from wagma.demo.progress import progress_line
    from wagma.demo.training import train
    from wagma.launch.ranks import meet

    console.print(
        f"{comm.size} ranks, {imbalance.describe()}; {settings.steps} steps of "
        f"{settings.batch} samples per rank; WAGMA in groups of {settings.group_size}, "
        f"all ranks every {settings.sync_period} steps"
    )
    if comm.size == 1:
        console.print("One rank waits for nobody: try mpiexec -n 4 python -m wagma demo")
    digits = load(settings.seed) if comm.rank == 0 else None
    meet(comm)
    digits = comm.bcast(digits, root=0)
    runs = []
    for name in settings.algorithms:
        label = ALGORITHMS[name]
        with progress_line(console, label, settings.steps, shown and comm.rank == 0) as advance:
            runs.append(train(comm, settings, imbalance, name, digits, advance))
        if comm.rank == 0 and not shown:
            seconds = max(rank["end_seconds"] for rank in runs[-1]["ranks"])
            console.print(f"{label}: {settings.steps} steps in {seconds:.1f} s")
    return {
        "settings": asdict(settings),
        "imbalance": imbalance.describe(),
        "environment": _environment(comm),
        "runs": runs,
    }


def _environment(comm: MPI.Intracomm) -> dict[str, Any]:
    import torch
    from mpi4py import MPI

    from wagma.benchmarks.environment import command_line

    return {
        "command": command_line(),
        "ranks": comm.size,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mpi": MPI.Get_library_version().splitlines()[0].strip("\0 "),
    }


def _report(record: dict[str, Any], asked: Asked) -> None:
    from wagma.demo.figure import draw
    from wagma.demo.report import render, table

    sys.stdout.write(render(table(record)) + "\n")
    sys.stdout.write(
        "Other steps: those in which WAGMA does not wait for all ranks, as it does every "
        f"{record['settings']['sync_period']} steps.\nRanks on time: not delayed themselves. "
        "Models are evaluated afterwards, from copies.\n"
    )
    draw(record, asked.out)
    sys.stdout.write(f"Picture: {asked.out}\n")
    if asked.json is not None:
        asked.json.write_text(json.dumps(record) + "\n")
        sys.stdout.write(f"Raw times: {asked.json}\n")
