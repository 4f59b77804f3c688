"""Trains one model with several algorithms under one imbalance, and compares them.

    mpiexec -n 8 python -m wagma bench training --compute 100ms --imbalance paper:2:0.32
    mpiexec -n 4 python -m wagma bench training --task charlm --algorithms wagma,local10 --plots out

The algorithms train one after the other on the same ranks, from the same model, with the same
batches and the same delays. Models are evaluated afterwards, from copies.
docs/training-benchmark.md says how each figure comes about.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wagma.inject import forms
from wagma.launch import values
from wagma.launch.options import (
    add_group_size,
    add_progress,
    add_transport,
    integer,
    is_shown,
    reader,
)
from wagma.launch.packages import missing
from wagma.launch.together import on_world
from wagma.simulate.methods import NUMBERED
from wagma.units import parse_duration

from .algorithms import ALL, DEFAULT, check_name
from .settings import Settings
from .tasks import TASKS

if TYPE_CHECKING:
    from mpi4py import MPI

SUMMARY = "train with every algorithm under injected imbalance"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of the kind."""
    parser.epilog = (
        "SPEC is none, or one or more of the following, separated by commas; times are\n"
        "seconds, or have a unit as in 320ms; ranks and steps count from 0:\n  "
        + "\n  ".join(forms())
    )
    _add_training(parser)
    _add_algorithms(parser)
    _add_imbalance(parser)
    _add_output(parser)


def _add_training(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("training").add_argument
    tasks = "; ".join(f"{name}: {task.summary}" for name, task in TASKS.items())
    add("--task", choices=tuple(TASKS), default="digits", help=f"{tasks} (default: %(default)s)")
    add("--steps", type=integer(1), metavar="N", help=f"steps of every rank ({_defaults('steps')})")
    add(
        "--seeds",
        type=reader(_seeds),
        default=(1,),
        metavar="N,N,...",
        help="seeds of model, data and delays; every algorithm trains once with each (default: 1)",
    )
    add(
        "--batch",
        type=integer(1),
        metavar="N",
        help=f"samples per rank and step ({_defaults('batch')})",
    )
    add(
        "--micro-batches",
        type=integer(1),
        default=1,
        metavar="M",
        help="split the batch and the computing of a step into so many equal parts, and accumulate "
        "their gradients; SPEC then counts parts as steps (default: %(default)s)",
    )
    add(
        "--learning-rate",
        type=reader(_positive),
        metavar="X",
        help=f"learning rate of the task's optimizer ({_defaults('learning_rate')})",
    )
    add(
        "--parameters",
        type=integer(1),
        metavar="N",
        help="pad the model to so many, with parameters that are communicated and not used",
    )
    add(
        "--target",
        type=reader(_finite),
        metavar="X",
        help=f"accuracy (of episodes: mean return) whose time is reported ({_defaults('target')})",
    )


def _add_algorithms(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("algorithms").add_argument
    add(
        "--algorithms",
        type=reader(_algorithms),
        default=",".join(DEFAULT),
        metavar="NAMES",
        help="comma-separated, in the order in which they run: "
        f"{', '.join(ALL)}; {NUMBERED}; or package.module:Class of your own. "
        "The bound of your own is unknown, and that of auto, diloco-overlapN, diloco-groupsN, "
        "fastest-k, ddp, and all K-sync and K-async (default: %(default)s)",
    )
    add(
        "--sync-period",
        type=integer(1),
        default=10,
        metavar="TAU",
        help="WAGMA: versions from one average over all ranks to the next (default: %(default)s); "
        "the consensus of every algorithm is measured once in so many",
    )
    add(
        "--threshold",
        type=reader(parse_duration),
        metavar="TIME",
        help="time at which dropcompute, dropcompute-preempt and anytime stop a step, and "
        "dropcompute-localN a period (default: DropCompute finds its own; anytime: the mean "
        "emulated time of a step)",
    )
    add(
        "--calibration-steps",
        type=integer(1),
        default=10,
        metavar="N",
        help="dropcompute: steps, or periods, from whose times it finds its threshold (default: "
        "%(default)s)",
    )
    add_group_size(add)
    add_transport(add)


def _add_imbalance(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("imbalance").add_argument
    add(
        "--imbalance",
        default="none",
        metavar="SPEC",
        help="delays, and faults, see below; the paper's: paper:2:0.32 (default: %(default)s)",
    )
    add(
        "--compute",
        type=reader(parse_duration),
        metavar="TIME",
        help="emulate computing: a step of average cost sleeps until so much time has passed since "
        "it began, its gradient included, such as 100ms. More ranks than cores then measure "
        "communication and waiting, and not the cores",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add(
        "--json",
        metavar="FILE",
        help="write the results there, as wagma.report's training.schema.json says",
    )
    add("--plots", metavar="DIR", help="draw PNG pictures in DIR")
    add(
        "--picture",
        metavar="FILE",
        help="draw accuracy over wall time beside waiting into FILE, a PNG",
    )
    add("--markdown", action="store_true", help="print the table in Markdown")
    add(
        "--per-seed",
        action="store_true",
        help="print a line for each seed of an algorithm, not their mean and standard deviation",
    )
    add(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="print and draw the results of FILE, which --json wrote, and train nothing",
    )
    add_progress(add, "a live line")


def _defaults(name: str) -> str:
    of = ", ".join(f"{getattr(task, name):g} for {title}" for title, task in TASKS.items())
    return f"default: {of}"


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Train on the ranks of COMM_WORLD, or read results; return the exit status."""
    return run_preset(arguments, parser, printed(arguments))


def printed(arguments: argparse.Namespace) -> Callable[[dict[str, Any]], str]:
    """Return what makes the table as it was asked for."""
    from . import table

    form = table.markdown if arguments.markdown else table.text
    return partial(form, per_seed=arguments.per_seed)


def run_preset(
    arguments: argparse.Namespace,
    parser: argparse.ArgumentParser,
    text: Callable[[dict[str, Any]], str],
    fit: Callable[[Settings, int], Settings] = lambda settings, _: settings,
) -> int:
    """Train on the ranks of COMM_WORLD, or read; return the exit status.

    `text` makes what is printed of a result. `fit` fits the settings to the number of ranks.
    """
    if arguments.source is not None:
        return _show(arguments, parser, text)
    drawing = ["matplotlib"] if arguments.plots or arguments.picture else []
    if said := missing("rich", "torch", *TASKS[arguments.task].packages, *drawing):
        parser.error(said)
    settings = _settings(arguments)
    shown = is_shown(arguments.progress)

    def train(comm: MPI.Intracomm) -> int:
        from wagma.launch.together import everywhere

        from ..start import agree

        # Before torch is imported, which takes seconds.
        agreed, over = agree(comm, settings)
        agreed = fit(agreed, comm.size)
        # MPI first: ranks meet in its initialisation, and spin there while others import. Here they
        # sleep until all have, or one could not.
        everywhere(comm, lambda: import_module(".runner", __package__))
        from .runner import run_on

        return run_on(comm, agreed, over, shown, text)

    return on_world(parser, train)


def _show(
    arguments: argparse.Namespace,
    parser: argparse.ArgumentParser,
    text: Callable[[dict[str, Any]], str],
) -> int:
    """Print and draw results that were written before; under a launcher rank 0 does."""
    from wagma.launch.environment import launched_rank

    if launched_rank(os.environ) != 0:
        return 0
    drawing = ["matplotlib"] if arguments.plots or arguments.picture else []
    if said := missing("jsonschema", *drawing):
        parser.error(said)
    from .output import check_writable, put_training, stored

    defaults = parser.parse_args([])
    for field in fields(Settings):
        given = getattr(arguments, field.name) != getattr(defaults, field.name)
        if given and field.name not in ("plots", "picture"):
            option = field.name.replace("_", "-")
            parser.error(f"argument --{option}: nothing is trained with --from; leave it out")
    try:
        result = stored(arguments.source)
    except OSError as error:
        parser.error(f"argument --from: {arguments.source} cannot be read: {error.strerror}")
    except ValueError as error:
        parser.error(f"argument --from: {arguments.source}: {error}")
    try:
        check_writable(arguments)
    except ValueError as error:
        parser.error(str(error))
    put_training(result, text, arguments)
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    defaults = TASKS[arguments.task]

    def chosen(name: str) -> Any:
        value = getattr(arguments, name)
        return getattr(defaults, name, None) if value is None else value

    return Settings(**{field.name: chosen(field.name) for field in fields(Settings)})


# ---- values of options ---------------------------------------------------------------------------


def _algorithms(text: str) -> tuple[str, ...]:
    return _once(text, tuple(check_name(name.strip()) for name in text.split(",")))


def _seeds(text: str) -> tuple[int, ...]:
    return _once(text, tuple(values.integer(word, 0) for word in text.split(",")))


T = TypeVar("T", str, int)


def _once(text: str, found: tuple[T, ...]) -> tuple[T, ...]:
    for value in found:
        if found.count(value) > 1:
            raise ValueError(f"{text!r} names {value} twice")
    return found


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _positive(text: str) -> float:
    value = _finite(text)
    if value <= 0:
        raise ValueError(f"{text} is too small: more than 0 is needed")
    return value
