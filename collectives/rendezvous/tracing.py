"""Labels of timelines (WAGMA_TRACE): the collective, and the clock relative to rank 0's.

Ranks that share a segment share a clock and a number, which the engine knows. Over messages rank 0
draws the number, and one rank per clock compares its clock with rank 0's. That takes a few
milliseconds per node and happens only if a rank writes a timeline.
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

ROUNDS = 50  # questions to rank 0; the fastest round trip counts
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/time")


class Mark(NamedTuple):
    """Arguments of `Handle._label_trace`."""

    collective: int  # number of this collective, random
    # rank 0's CLOCK_MONOTONIC minus this rank's, and the largest error of it, ns
    clock: tuple[int, int]


class _Rank(NamedTuple):
    traced: bool
    clock: tuple[str, str]
    drawn: int


def mark(comm: MPI.Intracomm, exchange: Callable[[Callable[[], _Rank]], list[Any]]) -> Mark | None:
    """Return the label of this rank's timeline; None: no rank writes one. Collective.

    Args:
        comm: communicator without other messages meanwhile.
        exchange: gathers the value of a function on every rank, see `Meeting.exchange`.
    """
    gathered = exchange(
        lambda: _Rank(bool(os.environ.get("WAGMA_TRACE")), _own_clock(), _random_number())
    )
    ranks = [_Rank(traced, tuple(clock), drawn) for traced, clock, drawn in gathered]
    if not any(rank.traced for rank in ranks):
        return None
    own = ranks[comm.Get_rank()].clock
    first = {rank.clock: number for number, rank in reversed(list(enumerate(ranks)))}
    compares = comm.Get_rank() == first[own]
    some = cast("MPI.Intracomm", comm.Split(0 if compares else 1, comm.Get_rank()))
    estimate = clock.compare(some, time.monotonic_ns, ROUNDS) if compares else None
    some.Free()
    estimates = comm.allgather(estimate)
    shared = estimates[first[own]]
    assert shared is not None
    return Mark(ranks[0].drawn, (shared.offset_ns, shared.error_ns))


def _random_number() -> int:
    """Return an odd number of 63 bits."""
    return int.from_bytes(os.urandom(8)) >> 1 | 1


def _own_clock() -> tuple[str, str]:
    """Return the identity of this rank's CLOCK_MONOTONIC: the boot and the time namespace."""
    try:
        return BOOT.read_text().strip(), NAMESPACE.readlink().name
    except OSError:
        return os.uname().nodename, ""
