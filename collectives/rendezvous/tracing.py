"""What timelines (WAGMA_TRACE) of ranks on several nodes need to be put beside each other.

Ranks that share a segment share a clock and a number, which the engine knows. Over messages rank 0
draws the number, and one rank of each other clock compares it with rank 0's. That takes a few
milliseconds per node and is done only where somebody writes a timeline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import clock

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Mark", "mark"]

ROUNDS = 50  # questions to rank 0; the fastest answer counts
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/time")


class Mark(NamedTuple):
    """For `Handle._label_trace`.

    Attributes:
        collective: a number that these ranks share, and nobody else has.
        clock: rank 0's CLOCK_MONOTONIC minus this one's, and by how much that can be wrong, ns.
    """

    collective: int
    clock: tuple[int, int]


class _Rank(NamedTuple):
    traced: bool
    clock: tuple[str, str]
    drawn: int


def mark(comm: MPI.Intracomm, exchange: Callable[[Callable[[], _Rank]], list[Any]]) -> Mark | None:
    """Collective; None: nobody writes a timeline.

    Args:
        comm: on which nobody else communicates meanwhile.
        exchange: makes a list, the same on all ranks, of what the function returns on each.
    """
    said = exchange(
        lambda: _Rank(bool(os.environ.get("WAGMA_TRACE")), _own_clock(), _random_number())
    )
    ranks = [_Rank(traced, tuple(clock), drawn) for traced, clock, drawn in said]
    if not any(rank.traced for rank in ranks):
        return None
    own = ranks[comm.Get_rank()].clock
    first = {rank.clock: number for number, rank in reversed(list(enumerate(ranks)))}
    compares = comm.Get_rank() == first[own]
    some = cast("MPI.Intracomm", comm.Split(0 if compares else 1, comm.Get_rank()))
    found = clock.compare(some, time.monotonic_ns, ROUNDS) if compares else None
    some.Free()
    answers = comm.allgather(found)
    answer = answers[first[own]]
    assert answer is not None
    return Mark(ranks[0].drawn, (answer.offset_ns, answer.error_ns))


def _random_number() -> int:
    """Odd, of 63 bits."""
    return int.from_bytes(os.urandom(8)) >> 1 | 1


def _own_clock() -> tuple[str, str]:
    """Whose CLOCK_MONOTONIC this rank reads: of a boot, in a time namespace."""
    try:
        return BOOT.read_text().strip(), NAMESPACE.readlink().name
    except OSError:
        return os.uname().nodename, ""
