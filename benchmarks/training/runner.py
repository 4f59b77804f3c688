"""All trainings, one after the other on the same ranks, and what becomes of their figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from wagma.inject import Injector, parse
from wagma.launch import interrupt
from wagma.launch.ranks import meet
from wagma.launch.together import abort_on_error, everywhere
from wagma.units import plural

from .. import environment
from . import stopping, table
from .algorithms import Compared, find
from .measured import figures
from .output import check_writable, document, put_training
from .progress import console_of, progress_line
from .settings import Settings
from .stop import Stop
from .tasks import Task, load
from .train import train

if TYPE_CHECKING:
    from mpi4py import MPI

# Seconds that may pass between Ctrl-C and the end of a step; the slowest one sleeps for long.
LONGEST_S = 30.0
NOTHING = "no training was finished, there are no results"


def run_on(
    comm: MPI.Intracomm,
    settings: Settings,
    over: str,
    progress: bool,
    text: Callable[[dict[str, Any]], str],
) -> int:
    """Train on all ranks of `comm`, rank 0 prints; return the exit status. Collective.

    Args:
        comm: the ranks.
        settings: of the benchmark, on which all ranks have agreed.
        over: what carries wagma's messages, "shm" or "mpi".
        progress: show a live line.
        text: makes the table of the document.

    Raises:
        InputError: the settings cannot be measured here.
    """
    torch.set_num_threads(1)  # one core per rank, as on a machine that is fully used
    with interrupt.Interrupt(comm) as interrupted:
        interrupted.longest_s = LONGEST_S
        compared = everywhere(comm, lambda: _algorithms(settings, comm))
        # By one rank for all: files may not be the same everywhere.
        found = everywhere(comm, lambda: _prepare(settings, comm) if comm.rank == 0 else None)
        imbalances, tasks = comm.bcast(found)
        everywhere(comm, lambda: _check_parameters(settings, tasks[0]))
        places = environment.gather(comm)
        warnings = _warnings(settings, environment.crowded_hosts(places))
        header = environment.surroundings(places, over, warnings)
        with abort_on_error(comm):
            runs = _train_all(comm, settings, compared, imbalances, tasks, interrupted, progress)
            stopped = interrupted.agreed()
            if comm.rank == 0 and runs:
                measures = (tasks[0].measures, tasks[0].in_percent)
                made = document(settings, header, imbalances[0], measures, runs, stopped)
                put_training(made, text, settings)
            elif comm.rank == 0 and stopped:
                sys.stderr.write(f"interrupted: {NOTHING}\n")
                sys.stderr.flush()
            meet(comm)  # rank 0 writes and draws; at MPI's end the others would spin
    return interrupt.STATUS if stopped else 0


# ---- what can be wrong ---------------------------------------------------------------------------


def _algorithms(settings: Settings, comm: MPI.Intracomm) -> list[Compared]:
    group, size = settings.group_size, comm.size
    if group is not None and group > size:
        raise ValueError(f"--group-size {group}: this run has {plural(size, 'rank')} only")
    stopping.check(settings)
    compared = [find(name, settings, size) for name in settings.algorithms]
    for one in compared:
        one.check(comm)
        if one.least_ranks > size:
            raise ValueError(
                f"--algorithms {one.name}: {one.label} needs {one.least_ranks} ranks or more, this "
                f"run has {size}; leave it out"
            )
    return compared


def _prepare(settings: Settings, comm: MPI.Intracomm) -> tuple[list[Injector], list[Task]]:
    """Return the imbalance and the data of each seed."""
    try:
        imbalances = [parse(settings.imbalance, comm.size, seed) for seed in settings.seeds]
    except OSError as error:
        raise ValueError(
            f"argument --imbalance: {error.filename} cannot be read: {error.strerror}"
        ) from None
    except ValueError as error:
        raise ValueError(f"argument --imbalance: {error}") from None
    check_writable(settings)
    return imbalances, [load(settings.task, seed) for seed in settings.seeds]


def _check_parameters(settings: Settings, task: Task) -> None:
    own = sum(parameter.numel() for parameter in task.build_model(0).parameters())
    if settings.parameters is not None and settings.parameters < own:
        raise ValueError(
            f"--parameters {settings.parameters}: the model of {settings.task} has {own} already; "
            "give at least as many"
        )


def _warnings(settings: Settings, crowded: list[str]) -> list[str]:
    if settings.compute is None:
        return crowded
    part = "step" if settings.micro_batches == 1 else "micro-batch"
    milliseconds = 1e3 * settings.compute / settings.micro_batches
    return [
        f"computing is emulated: a {part} of average cost sleeps until {milliseconds:g} ms "
        "have passed since it began, its gradient included. So ranks may share cores, and times "
        "are those of waiting and communication, not of this machine's arithmetic"
    ]


# ---- training ------------------------------------------------------------------------------------


def _train_all(
    comm: MPI.Intracomm,
    settings: Settings,
    compared: list[Compared],
    imbalances: list[Injector],
    tasks: list[Task],
    interrupted: interrupt.Interrupt,
    progress: bool,
) -> list[dict[str, Any]]:
    """Return the figures of each training that was finished."""
    first = comm.rank == 0
    console = console_of(first, progress)
    console.print(_announced(settings, comm.size, imbalances[0]))
    runs = []
    with _stop(comm, interrupted) as stop:
        for seed, task, imbalance in zip(settings.seeds, tasks, imbalances, strict=True):
            for one in compared:
                label = one.label + (f", seed {seed}" if len(settings.seeds) > 1 else "")
                with progress_line(console, label, settings.steps, progress and first) as advance:
                    trained = train(comm, settings, one, seed, task, imbalance, advance, stop.now)
                if trained is not None:
                    runs.append(figures(settings, one, seed, trained, imbalance))
                    if not progress:
                        console.print(table.line(settings, runs[-1]))
                if interrupted.agreed():
                    return runs
    return runs


@contextmanager
def _stop(comm: MPI.Intracomm, interrupted: interrupt.Interrupt) -> Iterator[Stop]:
    stop = Stop(comm, interrupted)
    yield stop
    stop.close()


def _announced(settings: Settings, size: int, imbalance: Injector) -> str:
    emulated = ""
    if settings.compute is not None:
        emulated = f", computing emulated by sleeping: {1e3 * settings.compute:g} ms per step"
    padded = "" if settings.parameters is None else f", padded to {settings.parameters} parameters"
    split = f" in {settings.micro_batches} micro-batches" if settings.micro_batches > 1 else ""
    return (
        f"{settings.task}{padded} on {plural(size, 'rank')}, {imbalance.describe()}; "
        f"{settings.steps} versions of {settings.batch} samples per rank{split}{emulated}"
    )
