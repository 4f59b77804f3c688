"""Ranks without MPI: threads of this process, or forked processes that tests stop and kill."""

import faulthandler
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from wagma.collectives import Handle, Segment
from wagma.inject import suspend

LIVENESS_S = 60.0  # far beyond what any test takes: a hang becomes a failure


def thread_ranks(size: int, body: Callable[[int], Any]) -> list[Any]:
    """What `body(rank)` returned on each of `size` threads; the first exception is raised."""
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(r,), daemon=True) for r in range(size)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LIVENESS_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if errors:
        raise errors[min(errors)]
    if stuck:
        faulthandler.dump_traceback(all_threads=True)
        raise AssertionError(f"ranks {stuck} hang")
    return results


def pair(**options: float) -> tuple[Handle, Handle]:
    """Two ranks in one thread, for arrays of three elements unless `count` says otherwise."""
    segment = Segment.create({"size": 2, "count": 3, **options})
    made = thread_ranks(2, lambda rank: Handle(segment, rank))
    return made[0], made[1]


class ForkedRanks:
    """`body(rank, segment, tell)` in a process per rank, over one segment; a context manager.

    `tell(x)` sends something to the test while the body runs. Whatever is still alive at the end
    is killed.
    """

    def __init__(
        self, options: dict[str, Any], body: Callable[[int, Segment, Callable[[Any], None]], Any]
    ) -> None:
        self._segment = Segment.create(options)
        context = multiprocessing.get_context("fork")
        self._pipes = []
        self._processes = []
        for rank in range(options["size"]):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=self._run, args=(rank, body, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def _run(self, rank: int, body: Callable[..., Any], pipe: Any) -> None:
        try:
            result = body(rank, self._segment, lambda x: pipe.send(("told", x)))
            pipe.send(("result", result))
        except BaseException as error:
            pipe.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        os._exit(0)  # what happens at a normal exit is tested elsewhere

    def __enter__(self) -> "ForkedRanks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()  # also ends a stopped one
            process.join()

    def pid(self, rank: int) -> int:
        pid = self._processes[rank].pid
        assert pid is not None
        return pid

    def signal(self, rank: int, signum: signal.Signals) -> None:
        """Sends a signal and, for SIGSTOP and SIGKILL, waits until it has taken effect."""
        if signum == signal.SIGSTOP:
            suspend(self.pid(rank))
            return
        os.kill(self.pid(rank), signum)
        if signum == signal.SIGKILL:
            self._processes[rank].join(LIVENESS_S)

    def told(self, rank: int, timeout: float = LIVENESS_S) -> Any:
        """The next thing that the rank sends with tell()."""
        kind, value = self._receive(rank, timeout)
        assert kind == "told", f"rank {rank}: {kind}: {value}"
        return value

    def told_last(self, rank: int) -> Any:
        """The newest of the things that the rank has sent, None if there is none."""
        last = None
        while self._pipes[rank].poll():
            last = self.told(rank)
        return last

    def result(self, rank: int, timeout: float = LIVENESS_S) -> Any:
        """What the body returned; what is told before is dropped."""
        deadline = time.monotonic() + timeout
        while True:
            kind, value = self._receive(rank, max(0.0, deadline - time.monotonic()))
            if kind != "told":
                assert kind == "result", f"rank {rank}: {value}"
                return value

    def _receive(self, rank: int, timeout: float) -> Any:
        assert self._pipes[rank].poll(timeout), f"rank {rank} said nothing for {timeout:.0f} s"
        return self._pipes[rank].recv()
