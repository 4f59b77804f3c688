"""Handlers that only remember: chained, not for children, and gone at the end."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from wagma.preemption import Preemption
from wagma.preemption.signals import Handlers

USR2, TERM = signal.SIGUSR2, signal.SIGTERM


@pytest.fixture(autouse=True)
def before() -> Iterator[dict[int, Any]]:
    """What was there has to be there after each test."""
    found = {number: signal.getsignal(number) for number in (signal.SIGUSR1, USR2, TERM)}
    yield found
    left = {number: signal.getsignal(number) for number in found}
    for number, handler in found.items():
        signal.signal(number, handler)
    assert left == found


def send(number: int) -> None:
    os.kill(os.getpid(), number)


class Noting:
    """A handler that was there before."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        assert frame is None or frame.f_code
        self.seen.append(number)


def test_signals_are_kept_and_the_handler_of_before_is_called() -> None:
    noting = Noting()
    original = signal.signal(USR2, noting)
    with Preemption() as preemption:
        send(USR2)
        send(TERM)  # which nothing handled before: it does not end the process
        send(USR2)
        assert preemption.received == [USR2, TERM, USR2]
        assert noting.seen == [USR2, USR2]
        assert not preemption.stopping  # there is no training
    assert signal.getsignal(USR2) is noting
    signal.signal(USR2, original)


def test_other_signals_are_left_alone(before: dict[int, Any]) -> None:
    with Preemption():
        assert signal.getsignal(signal.SIGUSR1) == before[signal.SIGUSR1]


def test_what_was_ignored_still_has_no_other_effect() -> None:
    original = signal.signal(TERM, signal.SIG_IGN)
    with Preemption() as preemption:
        send(TERM)
        assert preemption.received == [TERM]
    assert signal.getsignal(TERM) is signal.SIG_IGN
    signal.signal(TERM, original)


def test_handlers_go_with_an_exception_and_what_the_one_before_raises_is_raised() -> None:
    def raises(*_: object) -> None:
        raise OSError("of before")

    original = signal.signal(USR2, raises)
    with pytest.raises(OSError, match="of before"), Preemption() as preemption:
        send(USR2)
    assert preemption.received == [USR2]
    assert signal.getsignal(USR2) is raises
    signal.signal(USR2, original)


@pytest.mark.parametrize("wrong", [{"max_restarts": -1}, {"margin": -1.0}, {"margin": "2"}])
def test_nothing_is_installed_where_an_argument_is_wrong(
    wrong: dict[str, Any], before: dict[int, Any]
) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        Preemption(**wrong)
    assert signal.getsignal(USR2) == before[USR2]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, 0, 4711])
def test_signals_that_cannot_be_caught(number: int, before: dict[int, Any]) -> None:
    with pytest.raises(ValueError, match="signals"):
        Preemption(signals=(USR2, number))
    assert signal.getsignal(USR2) == before[USR2]


def test_nested() -> None:
    with Preemption() as outer:
        with Preemption(signals=(USR2,)) as inner:
            send(USR2)
            send(TERM)
        send(USR2)
    assert inner.received == [USR2]
    assert outer.received == [USR2, TERM, USR2]


def test_the_outer_one_may_end_first() -> None:
    """Its handler is called on by the inner one, and does nothing any more."""
    original = signal.getsignal(USR2)
    outer, inner = Preemption(signals=(USR2,)), Preemption(signals=(USR2,))
    outer.close()
    send(USR2)
    assert (outer.received, inner.received) == ([], [USR2])
    inner.close()
    send(USR2)  # the outer one's handler, which is left, protects
    assert (outer.received, inner.received) == ([], [USR2])
    signal.signal(USR2, original)


def test_one_that_came_later_stays() -> None:
    noting = Noting()
    original = signal.getsignal(USR2)
    with Preemption(signals=(USR2,)):
        signal.signal(USR2, noting)
    assert signal.getsignal(USR2) is noting
    signal.signal(USR2, original)


def test_in_a_thread_nothing_is_installed(before: dict[int, Any]) -> None:
    made: list[Preemption] = []
    thread = threading.Thread(target=lambda: made.append(Preemption()))
    thread.start()
    thread.join()
    assert signal.getsignal(USR2) == before[USR2]
    with made[0] as preemption:  # is left in another thread
        assert not preemption.received


def test_signals_that_arrive_while_a_thread_works() -> None:
    with Preemption() as preemption:
        thread = threading.Thread(target=lambda: [send(USR2) for _ in range(20)])
        thread.start()
        thread.join()
        assert preemption.received
        assert set(preemption.received) == {USR2}


def in_child(function: Callable[[], object]) -> int:
    """Return the status of a forked child that has run `function`."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_ends_by_sigterm_alone() -> None:
    with Preemption() as preemption:
        assert in_child(lambda: send(TERM)) == -TERM
        assert in_child(lambda: send(USR2)) == 7
        assert preemption.received == []
        send(USR2)
        assert preemption.received == [USR2]


class Slow(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        time.sleep(0.001)
        return index


@pytest.mark.parametrize("number", [USR2, TERM])
def test_workers_of_a_data_loader_outlive_the_signal(number: signal.Signals) -> None:
    """Launchers send it to all processes of a rank; as the page says for SIGTERM."""
    ignore = (lambda _: signal.signal(TERM, signal.SIG_IGN)) if number == TERM else None
    loader = torch.utils.data.DataLoader(
        Slow(), num_workers=2, multiprocessing_context="fork", worker_init_fn=ignore
    )
    with Preemption() as preemption:
        seen = []
        for (value,) in loader:
            seen.append(int(value))
            if len(seen) == 20:
                for worker in multiprocessing.active_children():
                    os.kill(worker.pid or 0, number)
                send(number)
        assert preemption.received == [number]
    assert seen == list(range(400))


def test_a_forked_child_has_the_handler_of_before() -> None:
    original = signal.signal(USR2, lambda *_: os._exit(3))
    with Preemption(), Preemption():
        assert in_child(lambda: send(USR2)) == 3
    signal.signal(USR2, original)


def test_a_handler_that_a_child_has_kept_does_nothing_but_what_was_there() -> None:
    """As a library that puts back what it found, in a child."""
    noting = Noting()
    original = signal.signal(USR2, noting)
    with Preemption() as preemption:
        found = signal.getsignal(USR2)

        def child() -> None:
            signal.signal(USR2, found)
            send(USR2)
            os._exit(0 if (noting.seen, preemption.received) == ([USR2], []) else 1)

        assert in_child(child) == 0
    signal.signal(USR2, original)


def test_a_child_that_a_library_forks_asks_for_nothing() -> None:
    """Python does not see that it is one."""
    with Preemption() as preemption:
        pid = ctypes.CDLL(None).fork()
        if pid == 0:
            send(USR2)
            os._exit(0 if not preemption.received else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_program_that_is_started_ends_by_the_signal_as_without() -> None:
    with Preemption():
        program = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
        done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -TERM


def test_handlers_are_made_of_what_they_call() -> None:
    seen: list[signal.Signals] = []
    handlers = Handlers((USR2, USR2), seen.append)
    send(USR2)
    handlers.restore()
    handlers.restore()
    assert seen == [USR2]
