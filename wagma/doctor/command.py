"""Examines this machine and this launch, and says what is wrong and what to do about it.

Every rank looks at itself: MPI and its launcher, the engine, cores and bindings, shared memory,
clocks, GPUs, and variables of the environment. Then all ranks make a small collective and check its
sums; where they are on several nodes and cannot send messages, those of each node do. Rank 0
prints. The exit status is 1 if there is a problem, and 0 if there are none, or warnings only.

    mpiexec -n 4 python -m wagma doctor
    python -m wagma doctor --bytes 400MiB --quorum 1
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from typing import TYPE_CHECKING

from wagma.launch.options import reader
from wagma.units import parse_duration, parse_size

if TYPE_CHECKING:
    from wagma.doctor.facts import Facts, Finding, Wanted

SUMMARY = "examine this machine and this launch: find problems and their remedies"

EXAMPLE_BYTES = 100 << 20
COMPLAINT_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the doctor's options to its parser."""
    parser.epilog = (
        "levels: ok; note (worth knowing); warning (slow, or may fail); problem (does not work)"
    )
    add = parser.add_argument
    add(
        "--bytes",
        type=reader(_size),
        metavar="SIZE",
        help="size of the arrays to be reduced, such as 400MiB: whether it fits into "
        "shared memory (default: 100MiB, for which a warning is enough)",
    )
    add(
        "--quorum",
        type=reader(_quorum),
        default="all",
        metavar="K",
        help='members that start a version: a number, "all" or "majority"; how much shared memory '
        "a handle needs depends on it (default: %(default)s)",
    )
    add("--json", action="store_true", help="print findings and facts as one JSON object")
    add(
        "--timeout",
        type=reader(parse_duration),
        default=60.0,
        metavar="TIME",
        help="end with status 1 and the stack of what hangs when it takes longer, such as 90s "
        "(default: 60s)",
    )


def _size(text: str) -> int:
    size = parse_size(text)
    if size == 0:
        raise ValueError(
            f"{text!r} has no bytes: pass the size of the arrays that are to be reduced, such as "
            "400MiB"
        )
    return size


def _quorum(text: str) -> str:
    if text in ("all", "majority") or (text.isdecimal() and int(text) > 0):
        return text
    raise ValueError(f'{text!r} must be a number from 1 on, "all" or "majority"')


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Examine all ranks; return the exit status, which is the same on all."""
    # MPI_Init can die of SIGBUS, where /dev/shm is too small: the stack says that it was there.
    faulthandler.enable()
    # A thread without the GIL: MPI_Init can hang, and holds it.
    faulthandler.dump_traceback_later(arguments.timeout, exit=True)
    try:
        return _examine(arguments, parser)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _examine(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from wagma.doctor.checks import examine
    from wagma.doctor.facts import Level, by_node
    from wagma.doctor.gather import gather
    from wagma.doctor.output import count, render_json, render_text
    from wagma.doctor.ranks import Lost

    try:
        facts, rank = gather(_wanted(arguments), arguments.timeout / 2, _early)
    except Lost as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    most = max(map(len, by_node(facts).values()))
    # One process may be alone by mistake, which is to be reported.
    if most > 1 and arguments.quorum.isdecimal() and int(arguments.quorum) > most:
        parser.error(
            f"argument --quorum: {arguments.quorum} is more than the {most} ranks of a node"
        )
    findings = examine(facts)
    if _reports(facts, rank):
        sys.stdout.write((render_json if arguments.json else render_text)(facts, findings))
    elif facts.lost:  # who has RANK 0 reports, if there is one
        for finding in findings:
            if finding.topic == "launch":
                _complain(f"rank {os.environ.get('RANK', rank)}", finding)
    return 1 if count(findings, Level.PROBLEM) else 0


def _early(facts: Facts) -> None:
    """Print what can keep MPI from starting: it may abort or hang before the report."""
    from wagma.doctor.checks.memory import before_mpi

    findings = list(before_mpi(facts))
    if findings and not _first_on_node():
        # One rank that crashes ends all: whoever complains has done so by then.
        time.sleep(COMPLAINT_S)
        return
    for finding in findings:
        _complain(f"{facts.ranks[0].host}, before MPI starts", finding)


def _complain(where: str, finding: Finding) -> None:
    sys.stderr.write(f"{where}: {finding.text}\n  -> {finding.remedy}\n")


def _first_on_node() -> bool:
    """Return whether this rank is its node's first by the launcher's variables; True without."""
    from wagma.launch.environment import launched_rank, local_rank

    place = local_rank(os.environ)
    return (launched_rank(os.environ) if place is None else place) == 0


def _reports(facts: Facts, rank: int) -> bool:
    """Return whether this process prints; of ranks that are alone by mistake, all would."""
    from wagma.launch.environment import launched_rank

    if facts.launcher:
        return rank == 0
    return launched_rank(os.environ) == 0 and (not facts.lost or os.environ.get("RANK", "0") == "0")


def _wanted(arguments: argparse.Namespace) -> Wanted:
    from wagma.doctor.facts import Wanted

    given = arguments.bytes is not None
    return Wanted(
        array_bytes=arguments.bytes if given else EXAMPLE_BYTES,
        quorum=arguments.quorum,
        given=given,
    )
