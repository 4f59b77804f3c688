"""Ranks that are stopped and killed: forked processes over one segment, without MPI.

Contributions and logs are those of versioned.py, so that survivors' results are checked for what
they hold, not only for arriving.
"""

import logging
import math
import mmap
import os
import random
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import versioned

from wagma.collectives import Handle, HandleError, PeerError, Segment

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

HELD_AT = 40
WINDOW = 30


def options(plan: versioned.Plan, **more: Any) -> dict[str, Any]:
    return {
        "size": plan.size,
        "group_size": plan.group_size,
        "quorum": plan.quorum,
        "count": plan.count,
        "average": plan.average,
        "sync_period": plan.sync_period or 0,
        "window": plan.window,
        "grace": 0.0,
        **more,
    }


def shared(*shape: int) -> versioned.Vector:
    """An array that forked processes have in common: pipes are slow for hundreds of megabytes."""
    memory = mmap.mmap(-1, math.prod(shape) * np.float32().itemsize)
    return np.frombuffer(memory, np.float32).reshape(shape)


def calls_until(
    plan: versioned.Plan, steps: int, pause: float, results: versioned.Vector
) -> Callable[[int, Segment, Callable[[Any], None]], list[versioned.Call]]:
    """Ranks that tell the version that they are about to call, after every pause.

    Rank 1 goes no further than to HELD_AT until it was continued. The results of their calls are
    left in `results`.
    """

    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> list[versioned.Call]:
        x = plan.contribution(rank, -1)
        held = rank == 1
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
        with Handle(segment, rank, x) as coll:

            def delay(rng: random.Random) -> float:
                nonlocal held
                tell((coll.version, time.monotonic()))
                if held and coll.version == HELD_AT:
                    held = False
                    signal.sigwait({signal.SIGCONT})
                return rng.random() * pause

            log = versioned.run(plan, rank, coll, x, steps, delay=delay)
        for call, row in zip(log, results[rank], strict=False):
            row[:] = call.result
            call.result = row[:0]
        return log

    return body


def wait_for_version(forked: ranks.ForkedRanks, rank: int, version: int) -> None:
    while forked.told(rank)[0] < version:
        pass


@pytest.mark.long
@pytest.mark.parametrize("where", ["outside a call", "inside a call"])
def test_a_stopped_rank_delays_nobody_until_the_window_is_used_up(where: str) -> None:
    """The others go on for a whole window, then wait, and all complete when it is continued."""
    slot = 5 if where == "outside a call" else 60_000  # a call is most of the loop
    plan = versioned.Plan(4, 4, quorum=1, window=WINDOW, slot=slot)
    steps = WINDOW + 60
    pause = 0.004 if where == "outside a call" else 0.0
    results = shared(plan.size, steps + 1, plan.count)
    with ranks.ForkedRanks(options(plan), calls_until(plan, steps, pause, results)) as forked:
        wait_for_version(forked, 1, 10)
        forked.signal(1, signal.SIGSTOP)
        last = forked.told_last(1)
        stopped_at = last[0] if last else 10
        for rank in (0, 2, 3):
            wait_for_version(forked, rank, stopped_at + WINDOW - 2)
        time.sleep(0.3)  # in which they could go on
        newest = [forked.told_last(rank) for rank in (0, 2, 3)]
        forked.signal(1, signal.SIGCONT)
        logs = [forked.result(rank) for rank in range(plan.size)]
    for log, rows in zip(logs, results, strict=True):
        for call, row in zip(log, rows, strict=False):
            call.result = row
    versioned.check(plan, logs)
    for told in newest:
        assert told is None or told[0] <= stopped_at + WINDOW + 2 < steps
    if where == "outside a call":
        last_but_one = stopped_at + WINDOW - 2
        calls = [call for log in logs for call in log if call.version == last_but_one]
        seen = next(call for call in calls if not call.late)  # a late one may have no result
        assert dict(zip(seen.contributors, seen.versions, strict=True))[1] in (
            stopped_at - 1,
            stopped_at,
        )


def test_a_stopped_rank_is_named_in_a_warning_and_waited_for_at_a_sync() -> None:
    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> float:
        class Tell(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                tell(record.getMessage())

        logging.getLogger("wagma").addHandler(Tell())
        x = np.full(3, rank, np.float32)
        with Handle(segment, rank, x) as coll:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
            tell("joined")
            if rank == 2:
                signal.sigwait({signal.SIGCONT})  # it is stopped before
            coll.sync(x)
        return float(x[0])

    with ranks.ForkedRanks(
        {"size": 3, "count": 3, "quorum": 1, "stall_warning": 0.2}, body
    ) as forked:
        for rank in range(3):
            while (message := forked.told(rank)) != "joined":  # where the cores are busy
                assert "(phase creation)" in message
        forked.signal(2, signal.SIGSTOP)
        for rank in (0, 1):
            while " for rank 2, which" not in (message := forked.told(rank)):
                assert " for ranks " in message  # the other one comes late
            assert message.startswith(f"rank {rank} has waited ")
            assert " at version 0 (phase sync) for rank 2, which is alive" in message
        forked.signal(2, signal.SIGCONT)
        assert [forked.result(rank) for rank in range(3)] == [1.0, 1.0, 1.0]


def survivors_of(
    plan: versioned.Plan, steps: int, before: Callable[[int, int], None] = lambda *_: None
) -> Callable[[int, Segment, Callable[[Any], None]], Any]:
    """Calls until PeerError; returns the log of what was completed and when the error came.

    `before` is called with the rank and the version before each call.
    """

    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> Any:
        log: list[versioned.Call] = []
        x = plan.contribution(rank, -1)
        coll = Handle(segment, rank, x)
        try:
            while coll.version < steps:
                tell(coll.version)
                before(rank, coll.version)
                began = time.monotonic()
                log += versioned.run(plan, rank, coll, x, coll.version + 1, final_sync=False)
        except PeerError as error:
            failed = time.monotonic()
            with pytest.raises(HandleError):
                coll.allreduce(x)
            return log, str(error), began, failed
        return log, "", 0.0, 0.0

    return body


@pytest.mark.parametrize(
    ("quorum", "slot"), [(1, 5), (1, 60_000), (4, 5), (4, 60_000)],
    ids=["one-small", "one-mid-slice", "all-small", "all-mid-slice"],
)  # fmt: skip
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_survivors_of_a_killed_rank(quorum: int, slot: int, seed: int) -> None:
    """Correct results until a version needs the dead one, then PeerError that names it, quickly."""
    plan = versioned.Plan(4, 4, quorum=quorum, sync_period=20, window=20, slot=slot)
    with ranks.ForkedRanks(options(plan), survivors_of(plan, 100_000)) as forked:
        wait_for_killing = random.Random(seed).randrange(3, 30)
        while forked.told(1) < wait_for_killing:
            pass
        time.sleep(random.Random(seed).random() * 0.003)
        forked.signal(1, signal.SIGKILL)
        killed = time.monotonic()
        results = {rank: forked.result(rank, timeout=20) for rank in (0, 2, 3)}
    logs: list[list[versioned.Call]] = [[], [], [], []]
    for rank, (log, message, began, failed) in results.items():
        logs[rank] = log
        assert message, "nobody noticed"
        assert failed - max(began, killed) < 10.0  # 1 s, and what a busy machine adds
    messages = [message for _, message, _, _ in results.values()]
    # The others may have been told of a survivor that gave up for its sake.
    assert any(re.search(r"\branks? 1\b", message) for message in messages), messages
    versioned.check(plan, logs)


def test_a_killed_rank_that_nobody_needs() -> None:
    """No sync versions and the window not used up: survivors do not even notice."""
    plan = versioned.Plan(3, 3, quorum=1, window=1000)
    dies = mmap.mmap(-1, 1)

    def kill(rank: int, version: int) -> None:
        if rank == 1 and version == 20:
            dies[0] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        while rank != 1 and version == 200 and not dies[0]:
            time.sleep(0.001)

    with ranks.ForkedRanks(options(plan), survivors_of(plan, 400, kill)) as forked:
        results = [forked.result(rank) for rank in (0, 2)]
    newest = set()
    for log, message, _, _ in results:
        assert message == ""
        assert log[-1].version == 399
        merged = [call for call in log if call.merged][-1]
        newest.add(dict(zip(merged.contributors, merged.versions, strict=True))[1])
    assert newest == {19}, "the last contribution of the dead rank changed"


def test_a_rank_that_never_joins() -> None:
    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> str:
        tell("here")
        if rank == 1:
            time.sleep(ranks.LIVENESS_S)
        try:
            Handle(segment, rank)
        except (PeerError, TimeoutError) as error:
            return str(error)
        return ""

    with ranks.ForkedRanks({"size": 2, "count": 1, "timeout": 0.3}, body) as forked:
        for rank in range(2):
            forked.told(rank)
        assert "1" in forked.result(0)
