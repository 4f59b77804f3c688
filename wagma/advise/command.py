"""Says which method makes a training faster, from a profile of it: simulates every method.

Prints what is slow and why, what the training does without a change, and the three best methods
with their throughput, their risk to convergence, and the lines of Python that switch them on.
docs/advise.md says how that is predicted.

    python -m wagma advise profile.json --ranks 64
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch import values
from wagma.launch.options import add_progress, integer, is_shown, reader
from wagma.launch.packages import missing

if TYPE_CHECKING:
    from wagma.profile import TrainingProfile
    from wagma.simulate import Network

SUMMARY = "say which method makes a profiled training faster, and how much"
ON_RANK_0 = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    add = parser.add_argument
    add("profile", type=Path, metavar="PROFILE", help="what wagma.Profile wrote")
    add(
        "--ranks",
        type=integer(2),
        metavar="N",
        help="predict for so many ranks (default: those of the profile)",
    )
    add(
        "--time-to-loss",
        action="store_true",
        help="let stale gradients and models that drift apart count against a method",
    )
    add(
        "--noise-scale",
        type=reader(values.noise_scale),
        metavar="N",
        help="with --time-to-loss: of the gradients, in local batches; counts what a sample is "
        "worth in updates of so many",
    )
    add(
        "--network",
        metavar="NAME|FILE",
        help="node, ethernet, infiniband or slingshot: pattern of the network, whose numbers are "
        "scaled to the profile's times as far as it has them (default: by its hosts); a file: "
        "numbers that wagma tune measured",
    )
    add("--seed", type=integer(0), default=0, metavar="N", help="of all draws (default: 0)")
    add("--json", type=Path, metavar="FILE", help="write the advice there")
    add_progress(add, "a bar")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Read, simulate and print."""
    if arguments.noise_scale is not None and not arguments.time_to_loss:
        parser.error("argument --noise-scale: it counts with --time-to-loss alone: give both")
    if said := missing("scipy"):
        parser.error(said)
    try:
        return _advise(arguments)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        what = "written" if error.filename == str(arguments.json) else "read"
        parser.error(f"{error.filename} cannot be {what}: {error.strerror}")
    except MemoryError:
        parser.error(f"--ranks {arguments.ranks}: so many do not fit into memory: give a lower one")


def _advise(arguments: argparse.Namespace) -> int:
    from wagma.advise.candidates import candidates
    from wagma.advise.search import advise
    from wagma.launch.files import check_writable, write_file
    from wagma.launch.progress import bar
    from wagma.profile import load
    from wagma.simulate import Workload

    if arguments.json:
        check_writable(arguments.json)
    profile = load(arguments.profile)
    network = _network(arguments.network, profile)
    try:
        count = sum(1 for _ in candidates(Workload.from_profile(profile, arguments.ranks)))
        with bar(count, visible=is_shown(arguments.progress)) as advance:
            advice = advise(
                profile,
                arguments.ranks,
                time_to_loss=arguments.time_to_loss,
                noise_scale=arguments.noise_scale,
                network=network,
                seed=arguments.seed,
                advance=advance,
            )
    except ValueError as error:
        raise ValueError(f"{arguments.profile}: {error}") from None
    if arguments.json:
        document = json.dumps(advice.to_dict(), indent=1, allow_nan=False)
        write_file(arguments.json, document + "\n")
    sys.stdout.write(advice.text())
    return 0


def _network(given: str | None, profile: TrainingProfile) -> Network | str | None:
    """Return the name of a network; or that of a file, for as many ranks per node as profiled."""
    from wagma.advise.network import ranks_per_node
    from wagma.simulate.network import NETWORKS
    from wagma.simulate.tuned import network

    if given is None or given in NETWORKS:
        return given
    each = ranks_per_node(profile)
    return network(given, each if each < profile.ranks else 1)
