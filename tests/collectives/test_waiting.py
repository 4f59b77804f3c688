"""Wait inside a call: timeouts, warnings, other threads, signals."""

import logging
import os
import re
import signal
import threading
import time

import numpy as np
import pytest
import ranks

from wagma.collectives import Handle, HandleError, PeerError, Segment, StallError


def test_timeout_names_the_missing(x: np.ndarray) -> None:
    a, _b = ranks.pair(timeout=2.7)
    started = time.monotonic()
    with pytest.raises(StallError, match="for rank 1, which is alive") as caught:
        a.allreduce(x)
    assert time.monotonic() - started >= 2.7
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(HandleError, match="the handle failed earlier: rank 0 has waited"):
        a.allreduce(x)


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_stall_warnings_go_to_the_log(
    seconds: float, x: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    segment = Segment.create({"size": 2, "count": 3, "stall_warning": seconds, "timeout": 2.7})
    a, _b = ranks.thread_ranks(2, lambda rank: Handle(segment, rank, name="weights"))
    with caplog.at_level(logging.WARNING, "wagma"), pytest.raises(StallError):
        a.allreduce(x)
    *warnings, last_events = caplog.records
    assert last_events.levelno == logging.ERROR
    waited = []
    for record in warnings:
        assert record.name == "wagma"
        found = re.fullmatch(
            r"rank 0 \(weights\) has waited (\d+\.\d+) s at version 0 \(phase quorum\) for rank 1, "
            "which is alive and has not called yet",
            record.getMessage(),
        )
        assert found, record.getMessage()
        waited.append(float(found[1]))
    assert len(waited) >= 2
    assert len(waited) <= 10 * waited[-1] + 1  # never more often than every tenth of a second


def test_other_threads_run_while_a_call_waits() -> None:
    """Both for small payloads, which are tried with the GIL held, and for large ones."""
    for count in (1, 100_000):
        segment = Segment.create({"size": 2, "count": count})

        def body(rank: int, segment: Segment = segment, count: int = count) -> float:
            x = np.full(count, rank, np.float32)
            with Handle(segment, rank, x) as coll:
                if rank == 1:
                    time.sleep(0.1)
                coll.allreduce(x)
            return float(x[0])

        assert ranks.thread_ranks(2, body) == [0.5, 0.5]


def test_a_signal_ends_a_wait(x: np.ndarray) -> None:
    """What the handler raises comes out of the call, and the rank has failed."""

    class AlarmError(Exception):
        pass

    def on_alarm(*_: object) -> None:
        raise AlarmError

    def signal_in_call() -> None:
        while True:
            try:
                a.empty()
            except HandleError:  # the main thread uses it
                os.kill(os.getpid(), signal.SIGALRM)
                return
            time.sleep(0.001)

    a, b = ranks.pair()
    before = signal.signal(signal.SIGALRM, on_alarm)
    sender = threading.Thread(target=signal_in_call)
    try:
        with pytest.raises(AlarmError):
            sender.start()
            a.allreduce(x)
    finally:
        sender.join()
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(HandleError):
        a.allreduce(x)
    with pytest.raises(PeerError, match="rank 0"):
        while b.version < 2:  # the version that rank 0 had called may still be executed
            b.allreduce(x)


def test_a_signal_handler_that_returns_does_not_disturb_a_wait(x: np.ndarray) -> None:
    seen = []
    a, b = ranks.pair()
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    thread = threading.Timer(0.3, lambda: b.allreduce(x.copy()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        thread.start()
        a.allreduce(x)
    finally:
        signal.signal(signal.SIGALRM, before)
        thread.join()
    assert seen == [1]
