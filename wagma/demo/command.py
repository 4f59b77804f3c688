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
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wagma.demo.settings import ALGORITHMS, DELAY, Settings, default_delayed_ranks
from wagma.inject import Injector, Paper, forms, parse

if TYPE_CHECKING:
    from mpi4py import MPI
    from rich.console import Console

__all__ = ["SUMMARY", "add_arguments", "run"]

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
        type=_integer(0),
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
        type=_integer(1),
        default=300,
        metavar="N",
        help="steps of every rank (default: %(default)s)",
    )
    add(
        "--group-size",
        type=_integer(1),
        metavar="S",
        help="of WAGMA: ranks that average at a step (default: the square root of the ranks, "
        "rounded up to a power of two)",
    )
    add(
        "--sync-period",
        type=_integer(1),
        default=10,
        metavar="TAU",
        help="of WAGMA: steps from one average over all ranks to the next (default: %(default)s)",
    )
    add(
        "--seed",
        type=_integer(0),
        default=1,
        metavar="N",
        help="of model, batches and imbalance (default: %(default)s)",
    )
    add(
        "--transport",
        choices=("auto", "shm", "mpi"),
        default="auto",
        help="what the ranks talk through: shared memory of one node, messages over MPI, or auto: "
        "memory where all are on one node (default: %(default)s)",
    )
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
    add(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help="a live line on rank 0; auto: when standard error is a terminal, which it is not "
        "under most mpiexec (default: %(default)s)",
    )


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


def _integer(lowest: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is too small: at least {lowest}")
        return value

    return integer


def _number(lowest: float, highest: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not lowest <= value <= highest:  # also refuses NaN
            raise argparse.ArgumentTypeError(f"{text} is not from {lowest:g} to {highest:g}")
        return value

    return number


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Runs the demo on the ranks of COMM_WORLD; returns the exit status."""
    for name in ("matplotlib", "rich", "sklearn", "torch"):
        if find_spec(name) is None:
            parser.error(
                f"{name} is not installed; in the root of the sources: "
                "python -m pip install '.[demo]'"
            )
    # MPI first: ranks meet in its initialisation, and spin there while others import.
    from mpi4py import MPI

    from wagma.demo.ranks import meet

    comm = MPI.COMM_WORLD
    import torch
    from rich.console import Console

    meet(comm)
    _check_sizes(arguments, comm.size, parser)
    # By one rank for all: files are written and read, and may not be the same everywhere.
    imbalance = comm.bcast(_prepare(arguments, comm.size) if comm.rank == 0 else None, root=0)
    if isinstance(imbalance, str):
        parser.error(imbalance)
    settings = _settings(arguments, comm.size, imbalance)
    torch.set_num_threads(1)  # one core per rank, as on a machine that is fully used
    shown = arguments.progress == "always" or (arguments.progress == "auto" and sys.stderr.isatty())
    console = Console(
        stderr=True,
        quiet=comm.rank != 0,
        force_terminal=shown or None,
        highlight=False,
        soft_wrap=True,
    )
    record = _train_all(comm, settings, imbalance, console, shown)
    if comm.rank == 0:
        _report(record, arguments)
    meet(comm)
    return 0


def _check_sizes(arguments: argparse.Namespace, size: int, parser: argparse.ArgumentParser) -> None:
    """What can be wrong with the arguments for this number of ranks, and with two of them."""
    delayed, group = arguments.delayed_ranks, arguments.group_size
    for option, value in (("--delayed-ranks", delayed), ("--group-size", group)):
        if value is not None and value > size:
            parser.error(f"argument {option}: {value} is more than the {size} ranks of this run")
    for option, value in (("--delay", arguments.delay), ("--delayed-ranks", delayed)):
        if value is not None and arguments.imbalance is not None:
            parser.error(f"argument --imbalance: not allowed with argument {option}")


def _prepare(arguments: argparse.Namespace, size: int) -> Injector | str:
    """Returns the imbalance, or what is wrong.

    Whether the results can be written is found out here, before the training.
    """
    try:
        imbalance = _imbalance(arguments, size)
    except (OSError, ValueError) as error:
        return f"argument --imbalance: {error}"
    for option, path in (("--out", arguments.out), ("--json", arguments.json)):
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab"):
                pass
        except OSError as error:
            return f"argument {option}: cannot write {path}: {error.strerror}"
    return imbalance


def _imbalance(arguments: argparse.Namespace, size: int) -> Injector:
    if arguments.imbalance is not None:
        return parse(arguments.imbalance, size, arguments.seed)
    delayed, delay = arguments.delayed_ranks, arguments.delay
    pattern = Paper(
        size,
        delayed_ranks=default_delayed_ranks(size) if delayed is None else delayed,
        seconds=DELAY if delay is None else delay,
        seed=arguments.seed,
    )
    return Injector(size, (pattern,))


def _settings(arguments: argparse.Namespace, size: int, imbalance: Injector) -> Settings:
    from wagma.algorithms.wagma import default_group_size

    group = arguments.group_size
    return Settings(
        algorithms=arguments.algorithms,
        imbalance=str(imbalance),
        steps=arguments.steps,
        group_size=default_group_size(size) if group is None else group,
        sync_period=arguments.sync_period,
        seed=arguments.seed,
        transport=arguments.transport,
        snapshot_every=math.ceil(arguments.steps / SNAPSHOTS),
    )


def _train_all(
    comm: MPI.Intracomm, settings: Settings, imbalance: Injector, console: Console, shown: bool
) -> dict[str, Any]:
    from wagma.demo.data import load
    from wagma.demo.progress import progress_line
    from wagma.demo.ranks import meet
    from wagma.demo.training import train

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

    return {
        "ranks": comm.size,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mpi": MPI.Get_library_version().splitlines()[0].strip("\0 "),
    }


def _report(record: dict[str, Any], arguments: argparse.Namespace) -> None:
    from wagma.demo.figure import draw
    from wagma.demo.report import render, table

    sys.stdout.write(render(table(record)) + "\n")
    sys.stdout.write(
        "Other steps: those in which WAGMA does not wait for all ranks, as it does every "
        f"{record['settings']['sync_period']} steps.\nRanks on time: not delayed themselves. "
        "Models are evaluated afterwards, from copies.\n"
    )
    draw(record, arguments.out)
    sys.stdout.write(f"Picture: {arguments.out}\n")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(record) + "\n")
        sys.stdout.write(f"Raw times: {arguments.json}\n")
