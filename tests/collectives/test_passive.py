"""A rank that is not in a call does nothing: no threads, no CPU time, whatever the others do."""

import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

from wagma.collectives import Handle, Segment

pytestmark = [pytest.mark.alone, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

ASLEEP_S = 0.5


@pytest.mark.parametrize("count", [10, 100_000])
def test_a_rank_between_its_calls(count: int) -> None:
    """The other goes on meanwhile: it is given no help, and needs none."""

    asleep, gone_on = mmap.mmap(-1, 1), mmap.mmap(-1, 1)

    def body(rank: int, segment: Segment, _: Callable[[Any], None]) -> Any:
        before = threads()
        x = np.ones(count, np.float32)
        with Handle(segment, rank, x) as coll:
            created = threads()
            for _call in range(20):
                coll.allreduce(x)
            used = time.process_time()
            if rank == 0:
                asleep[0] = 1
                time.sleep(ASLEEP_S)
                while not gone_on[0]:
                    time.sleep(0.05)
                return before, created, threads(), time.process_time() - used
            while not asleep[0]:
                time.sleep(0.001)
            end = time.monotonic() + ASLEEP_S / 2
            calls = 0
            while calls <= 10 or time.monotonic() < end:
                coll.allreduce(x)
                calls += 1
            gone_on[0] = 1
            return calls

    options = {"size": 2, "count": count, "quorum": 1, "grace": 0.0, "window": 10**6}
    with ranks.ForkedRanks(options, body) as forked:
        before, created, after, seconds = forked.result(0)
        assert forked.result(1) > 10
    assert before == created == after
    assert seconds < ASLEEP_S / 10


def threads() -> int:
    """Threads of this process, those of the libraries included."""
    return len(list(Path("/proc/self/task").iterdir()))
