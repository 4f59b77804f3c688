"""All methods, one after the other on the same ranks, and what becomes of their figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from wagma.launch import interrupt
from wagma.launch.ranks import meet
from wagma.launch.together import abort_on_error, everywhere
from wagma.report.heterogeneous import LABELS, announced
from wagma.theory.cannikin.clusters import cluster

from .. import environment
from ..training.output import check_new, put
from ..training.progress import console_of, progress_line
from . import table
from .figures import runs
from .settings import Settings, check
from .train import Epoch, train

if TYPE_CHECKING:
    from mpi4py import MPI

    from wagma.theory.cannikin import NodeModel

JSON = "heterogeneous.json"
SAMPLES = 32  # per rank, unless a total batch was asked for
NOISE = 10  # times the largest total batch: fixed times are worth a larger one then
EMULATED = (
    "computing is emulated by sleeping, so that ranks may share cores; averaging and planning are "
    "real, and take longer where ranks share cores"
)


def run_on(
    comm: MPI.Intracomm, settings: Settings, *, over: str, progress: bool, markdown: bool
) -> int:
    """Train on all ranks of `comm`, rank 0 prints; return the exit status. Collective.

    Args:
        comm: the ranks.
        settings: of the benchmark, on which all ranks have agreed.
        over: what carries wagma's messages, "shm" or "mpi".
        progress: show a live line.
        markdown: print the table as documents have it.

    Raises:
        InputError: the settings cannot be measured here.
    """
    torch.set_num_threads(1)
    everywhere(comm, lambda: _check(settings, comm))
    smallest = settings.batch or SAMPLES * comm.size
    if settings.batch_range is not None:
        smallest = settings.batch_range[0]
    noise_scale = settings.noise_scale or NOISE * (settings.batch_range or (0, smallest))[1]
    nodes = _nodes(settings, comm.size, smallest)
    fastest = min(node.q + node.k for node in nodes)
    places = environment.gather(comm)
    result: dict[str, Any] = {
        "benchmark": "heterogeneous",
        "environment": environment.surroundings(places, over, [EMULATED]),
        "settings": asdict(settings),
        "nodes": len(cluster(settings.cluster).nodes),
        "relative_times": [(node.q + node.k) / fastest for node in nodes],
        "models": [asdict(node) for node in nodes],
        "smallest": smallest,
        "noise_scale": noise_scale,
    }
    with interrupt.Interrupt(comm) as interrupted, abort_on_error(comm):
        # It is asked after epochs, the longest of which is one of an even split.
        interrupted.longest_s = 10 * settings.steps * settings.step_time
        measured = _train_all(comm, settings, nodes, result, interrupted, progress)
        stopped = interrupted.agreed()
        result["interrupted"] = stopped
        result["runs"] = runs(settings, nodes, smallest, noise_scale, measured)
        if comm.rank == 0:
            _put(result, settings.out, markdown)
        meet(comm)  # rank 0 writes and draws; at MPI's end the others would spin
    return interrupt.STATUS if stopped else 0


def _nodes(settings: Settings, ranks: int, smallest: int) -> tuple[NodeModel, ...]:
    made = cluster(
        settings.cluster, step_time=settings.step_time, batch=smallest, nodes=ranks, overlap=0.0
    )
    return made.nodes


def _check(settings: Settings, comm: MPI.Intracomm) -> None:
    check(settings, comm.size, len(cluster(settings.cluster).nodes))
    if settings.out is not None and comm.rank == 0:
        check_new("--out", Path(settings.out, JSON))


def _train_all(
    comm: MPI.Intracomm,
    settings: Settings,
    nodes: tuple[NodeModel, ...],
    result: dict[str, Any],
    interrupted: interrupt.Interrupt,
    progress: bool,
) -> dict[str, list[Epoch]]:
    """Return the epochs of each method that has begun."""
    first = comm.rank == 0
    console = console_of(first, progress)
    console.print(announced(result))
    batch = settings.batch_range or result["smallest"]
    noise_scale = result["noise_scale"]
    measured: dict[str, list[Epoch]] = {}
    for method in settings.methods:
        count = settings.epochs * settings.steps
        with progress_line(console, LABELS[method], count, progress and first) as advance:
            measured[method] = train(
                comm, settings, method, nodes, batch, noise_scale, advance, interrupted.agreed
            )
        if not progress:
            console.print(table.line(LABELS[method], measured[method]))
        if interrupted.agreed():
            break
    return measured


def _put(result: dict[str, Any], out: str | None, markdown: bool) -> None:
    """Print the table, write and draw."""

    def draw() -> list[Path]:
        if out is None:
            return []
        from . import plots

        return plots.draw(result, Path(out))

    shown = table.markdown(result) if markdown else table.text(result)
    put(shown, result, None if out is None else Path(out, JSON), draw)
