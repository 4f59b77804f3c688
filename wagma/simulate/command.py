r"""Simulates trainings of any number of ranks with every method, and compares how fast they are.

Ranks compute for the given times, and wait as each method has them wait; averages take the time of
a network. No rank is started: 1,024 ranks take seconds of one core. docs/simulation.md says what is
modelled, and what is not.

    python -m wagma simulate --ranks 64,256,1024 --compute 300ms --imbalance paper:2:0.32 \
        --bytes 100MiB --network infiniband --plots figures
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wagma.launch import values
from wagma.launch.options import add_progress, integer, is_shown, reader
from wagma.launch.packages import missing
from wagma.units import parse_duration, parse_size, plural, time_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from wagma.simulate.methods import Method
    from wagma.simulate.rows import Row
    from wagma.simulate.workload import Workload

SUMMARY = "simulate methods at any number of ranks: throughput, late ranks, waiting"
ON_RANK_0 = True

_SETTINGS = (
    *("compute", "imbalance", "profile", "versions", "micro_batches", "bytes"),
    *("network", "ranks_per_node", "noise_scale", "seed"),
)
_METHODS = "wagma,allreduce,local10,dpsgd,sgp1,eager-majority,adpsgd"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    from wagma.inject import forms

    delays = (form for form in forms() if not form.startswith(("stop:", "kill:")))
    parser.epilog = "imbalances:\n" + "\n".join(f"  {form}" for form in delays)
    add = parser.add_argument
    add(
        "--ranks",
        type=reader(_ranks),
        default=(4, 16, 64, 256, 1024),
        metavar="N,...",
        help="numbers of ranks (default: 4,16,64,256,1024)",
    )
    add(
        "--methods",
        metavar="NAMES",
        help="comma-separated names of wagma bench training, and cannikin; all: all without a "
        f"number in the name that the workload allows (default: {_METHODS}; with --measured those "
        "that were measured)",
    )
    add(
        "--compute",
        type=reader(_compute),
        default=0.1,
        metavar="SECONDS",
        help="of a step without delay, such as 0.3 or 300ms (default: 100ms)",
    )
    add(
        "--profile",
        type=Path,
        metavar="FILE",
        help="draw the times from those of a training, which wagma.Profile wrote, in place of "
        "--compute, --imbalance and --micro-batches; --bytes is the model's then, if it is known",
    )
    add(
        "--imbalance",
        default="none",
        metavar="SPEC",
        help="delays, see below; the paper's: paper:2:0.32 (default: %(default)s)",
    )
    add(
        "--versions",
        type=integer(1),
        default=300,
        metavar="N",
        help="versions of every rank (default: %(default)s)",
    )
    add(
        "--micro-batches",
        type=integer(1),
        default=1,
        metavar="M",
        help="parts of a step, each of which is delayed; DropCompute needs 2 or more (default: 1)",
    )
    add(
        "--bytes",
        type=reader(parse_size),
        metavar="SIZE",
        help="of the model, such as 100MiB (default: 0, or the profile's)",
    )
    add(
        "--network",
        default="none",
        metavar="NAME|FILE",
        help="node, ethernet, infiniband or slingshot: nominal numbers; a file: those that wagma "
        "tune measured; none: communication takes no time (default: none)",
    )
    add(
        "--ranks-per-node",
        type=integer(1),
        default=1,
        metavar="N",
        help="ranks that sum up in shared memory before one of them uses the network (default: 1)",
    )
    add(
        "--noise-scale",
        type=reader(values.noise_scale),
        metavar="N",
        help="of the gradients, in local batches: adds the goodput, which counts what a sample is "
        "worth in updates of so many",
    )
    add("--seed", type=integer(0), default=1, metavar="N", help="of all draws (default: 1)")
    add(
        "--measured",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="simulate what wagma bench training --json wrote, and compare; of all other options "
        "only --network and --methods count",
    )
    add("--markdown", action="store_true", help="with --measured: a table for documents")
    add("--json", type=Path, metavar="FILE", help="write the rows there")
    add("--plots", type=Path, metavar="DIR", help="draw figures against ranks, PNG, in DIR")
    add_progress(add, "a bar")


def _compute(text: str) -> float:
    return parse_duration(text if text[-1:].isalpha() else f"{text}s")


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values.integer(word, 1) for word in text.split(",")))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Simulate, print and write."""
    if arguments.markdown and not arguments.measured:
        parser.error("argument --markdown: the table is that of --measured: give it, or leave this")
    if arguments.plots and (said := missing("matplotlib")):
        parser.error(said)
    try:
        if arguments.measured:
            return _compare(arguments)
        _check(arguments)
        return _simulate(arguments)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        read = [arguments.network, arguments.profile, *(arguments.measured or ())]
        reads = error.filename in map(str, read) or f":{error.filename}" in arguments.imbalance
        what = "read" if reads else "written"
        parser.error(f"{error.filename} cannot be {what}: {error.strerror}")
    except MemoryError:
        parser.error(
            f"{max(arguments.ranks):,} ranks with {arguments.versions:,} versions do not fit into "
            "memory: give a lower --ranks or --versions"
        )


def _check(arguments: argparse.Namespace) -> None:
    """Check that what is asked for can be written.

    Raises:
        OSError: it cannot.
    """
    from wagma.launch.files import check_writable

    if arguments.json:
        check_writable(arguments.json)
    if arguments.plots:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        check_writable(arguments.plots / "throughput.png")


def _simulate(arguments: argparse.Namespace) -> int:
    from wagma.launch.progress import bar
    from wagma.simulate.rows import rows, text
    from wagma.simulate.tuned import network as network_named

    names = arguments.methods or _METHODS
    methods = _methods(names)
    network = network_named(arguments.network, arguments.ranks_per_node)
    workload = _workloads(arguments)
    if arguments.network == "none" or not workload(arguments.ranks[0]).model_bytes:
        sys.stderr.write(
            "wagma simulate: communication takes no time, and throughputs are upper bounds: give "
            "--bytes and --network\n"
        )
    count = len(methods) * len(arguments.ranks)
    with bar(count, visible=is_shown(arguments.progress)) as advance:
        workloads = (workload(ranks) for ranks in arguments.ranks)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made, refused = rows(
                methods, workloads, network, arguments.seed, advance, arguments.noise_scale
            )
    for message in dict.fromkeys(str(warning.message) for warning in warned):
        sys.stderr.write(f"wagma simulate: {message}\n")
    if not made or (refused and names != "all"):
        raise ValueError("; ".join(refused))
    sys.stdout.write(text(made))
    if refused:
        sys.stdout.write("\nleft out:\n" + "".join(f"  {line}\n" for line in refused))
    _write(arguments, made)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    """Print simulated trainings beside measured ones.

    Raises:
        ValueError: a file is none that the benchmark wrote.
        OSError: it cannot be read.
    """
    from wagma.report.formats import FormatError, check_schema, loads
    from wagma.simulate.measured import compare, markdown, text
    from wagma.simulate.tuned import network as network_named

    network = network_named(arguments.network, arguments.ranks_per_node)
    named = (
        None if arguments.methods is None else [each.name for each in _methods(arguments.methods)]
    )
    found = []
    for path in arguments.measured:
        try:
            document = loads(path.read_bytes())
            check_schema(document, "wagma.report", "training.schema.json")
            found += compare(document, network, named)
        except (FormatError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None
    if not found:
        raise ValueError(f"--methods {arguments.methods}: none of these was measured")
    sys.stdout.write((markdown if arguments.markdown else text)(found))
    return 0


def _methods(names: str) -> list[Method]:
    from wagma.simulate.methods import METHODS, method

    if names == "all":
        return [method(name) for name in METHODS]
    return [method(word.strip()) for word in dict.fromkeys(names.split(","))]


def _workloads(arguments: argparse.Namespace) -> Callable[[int], Workload]:
    """Return what makes the workload of a number of ranks."""
    from dataclasses import replace

    from wagma.simulate.workload import Workload

    if arguments.profile is None:
        return lambda ranks: Workload.injected(
            arguments.imbalance,
            arguments.compute,
            ranks,
            arguments.versions,
            arguments.seed,
            arguments.micro_batches,
            arguments.bytes or 0,
        )
    from wagma.profile import load
    from wagma.profile.diagnosis import MIN_STEPS

    profile = load(arguments.profile)
    if profile.steps < MIN_STEPS:
        raise ValueError(
            f"{arguments.profile} has {plural(profile.steps, 'step')}, too few to draw times from: "
            f"record {MIN_STEPS} or more after the warm-up"
        )

    def drawn(ranks: int) -> Workload:
        made = Workload.from_profile(profile, ranks, arguments.versions, arguments.seed)
        return made if arguments.bytes is None else replace(made, model_bytes=arguments.bytes)

    return drawn


def _write(arguments: argparse.Namespace, made: list[Row]) -> None:
    """Write the JSON and the pictures."""
    from wagma.launch.files import write_file

    if arguments.json:
        document: dict[str, Any] = {
            "wagma": version("wagma"),
            "settings": {name: getattr(arguments, name) for name in _SETTINGS},
            "rows": made,
        }
        write_file(
            arguments.json, json.dumps(document, indent=1, allow_nan=False, default=str) + "\n"
        )
    if arguments.plots:
        from wagma.reproduce.picture import png
        from wagma.simulate.plots import numbers, pictures

        what = f"{arguments.imbalance}, steps of {time_text(arguments.compute, zeros=False)}"
        if arguments.profile:
            what = f"times of {arguments.profile.name}"
        for picture in pictures(what):
            write_file(arguments.plots / f"{picture.name}.png", png(picture, numbers(made)))
