"""Trains with even and uneven batches on ranks that are as fast as the nodes of a cluster.

    mpiexec -n 16 python -m wagma bench heterogeneous --cluster B --out out
    mpiexec -n 3 python -m wagma bench heterogeneous --cluster A --slowdown 0:2:6 --epochs 10
    mpiexec -n 8 python -m wagma bench heterogeneous --cluster C --batch-range 128:1024

Each rank emulates a node of a cluster of Nie et al. (2024): it sleeps as long as the node computes
on its batch, forward and backward, layer by layer, and gradients leave in buckets meanwhile. So
ranks may share cores. Communication and planning are real. With fewer ranks than nodes these are
chosen evenly, from the fastest one to the slowest.

A: RTX A5000, RTX A4000, Quadro P4000. B: four A100, four V100, eight RTX6000; the fastest is 3.42
times as fast as the slowest. C: 16 equal GPUs that others use, too; their shares fall evenly from 1
to 1/4.

The methods train one after the other: an even split, as with DDP; LB-BSP, which moves five samples
per epoch from the slowest rank to the fastest; AdaptDL, an even split whose total batch is chosen;
and Cannikin. A table compares the epochs, counted from 1:

  step: the median of an epoch's steps. Best epoch, and median from epoch 3 on: of the epochs after
    the last slowdown; the speed-up is that of these medians.
  best division without communication: in theory, on the nodes as they are.
  error of predictions: of the plan's time of a step, relative to the measured one; but for epochs
    in which a slowdown begins.
  epochs to within 3% of the best: of all methods; counted anew after each slowdown.
  planning: wagma.Cannikin.replan() after an epoch, exchange of measurements included.

Where a total batch is chosen, methods are compared by the time for equal progress: throughput times
the statistical efficiency of the total batch.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING

from wagma.launch.options import add_progress, add_transport, integer, is_shown, reader
from wagma.launch.packages import missing
from wagma.launch.together import on_world
from wagma.units import parse_duration

from .settings import METHODS, Settings, batch_range, methods, slowdowns

if TYPE_CHECKING:
    from mpi4py import MPI

SUMMARY = "train on ranks of different speeds, with even and uneven batches"

LEAST_STEPS = 4  # of which the first one does not count, and two are needed for a plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of the kind."""
    add = parser.add_argument
    add(
        "--cluster",
        choices=("A", "B", "C"),
        default="B",
        help="cluster whose nodes the ranks emulate, one each (default: %(default)s)",
    )
    add(
        "--methods",
        type=reader(methods),
        metavar="NAMES",
        help=f"comma-separated, in the order in which they run: {', '.join(METHODS)} (default: "
        "even,lb-bsp,cannikin; with --batch-range even,adaptdl,cannikin)",
    )
    size = parser.add_mutually_exclusive_group().add_argument
    size(
        "--batch",
        type=integer(1),
        metavar="N",
        help="samples of all ranks in a step (default: 32 per rank)",
    )
    size(
        "--batch-range",
        type=reader(batch_range),
        metavar="MIN:MAX",
        help="adaptdl and cannikin choose the total batch from these, the others take MIN",
    )
    add(
        "--noise-scale",
        type=integer(1),
        metavar="N",
        help="noise scale of the gradients, in samples, which decides how large a total batch is "
        "worth its time (default: ten times MAX of --batch-range)",
    )
    add(
        "--epochs",
        type=integer(3),
        default=8,
        metavar="N",
        help="epochs, each of which ends with a new plan (default: %(default)s)",
    )
    add(
        "--steps",
        type=integer(LEAST_STEPS),
        default=8,
        metavar="N",
        help="steps of an epoch (default: %(default)s)",
    )
    add(
        "--step-time",
        type=reader(parse_duration),
        default="300ms",
        metavar="TIME",
        help="step time of the best division of the smallest total batch, to which all times are "
        "scaled (default: %(default)s)",
    )
    add(
        "--slowdown",
        type=reader(slowdowns),
        default=(),
        metavar="RANK:FACTOR:EPOCH",
        help="comma-separated: from this epoch on the rank takes FACTOR times as long, as in 0:2:6",
    )
    add(
        "--parameters",
        type=integer(1),
        default=1 << 16,
        metavar="N",
        help="float32 parameters of the model, whose gradients are averaged (default: %(default)s)",
    )
    add_transport(add)
    add(
        "--out",
        metavar="DIR",
        help="write heterogeneous.json, and draw batch-times.png and shares.png, there; it is made",
    )
    add("--markdown", action="store_true", help="print the table in Markdown")
    add_progress(add, "a live line")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Train on the ranks of COMM_WORLD; return the exit status."""
    drawing = ["matplotlib"] if arguments.out else []
    if said := missing("rich", "torch", *drawing):
        parser.error(said)
    settings = _settings(arguments, parser)
    shown, markdown = is_shown(arguments.progress), arguments.markdown

    def train(comm: MPI.Intracomm) -> int:
        from wagma.launch.together import everywhere

        from ..start import agree

        asked, over = agree(comm, settings)
        everywhere(comm, lambda: import_module(".runner", __package__))
        from .runner import run_on

        return run_on(comm, asked, over=over, progress=shown, markdown=markdown)

    return on_world(parser, train)


def _settings(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> Settings:
    ranged = arguments.batch_range is not None
    names = arguments.methods or ("even", "adaptdl" if ranged else "lb-bsp", "cannikin")
    if "adaptdl" in names and not ranged:
        parser.error("argument --methods: adaptdl chooses the total batch: give --batch-range")
    if arguments.noise_scale is not None and not ranged:
        parser.error(
            "argument --noise-scale: only a total batch that is chosen depends on it: "
            "give --batch-range"
        )
    asked = {field.name: getattr(arguments, field.name) for field in fields(Settings)}
    return Settings(**asked | {"methods": names})
