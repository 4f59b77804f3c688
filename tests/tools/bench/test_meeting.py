"""The benchmarks' common start, without MPI."""

import mmap
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import ranks

from wagma.benchmarks._loop import Meeting, PeerLeftError, now, words_of
from wagma.benchmarks.start import Start, _same_process, _started
from wagma.collectives import Segment


def memory(size: int) -> mmap.mmap:
    return mmap.mmap(-1, words_of(size))


class Pipes:
    """As much of a communicator as `Start` needs, for processes that are forked or threads."""

    def __init__(self, size: int) -> None:
        self._pipes = [[Pipe(duplex=False) for _ in range(size)] for _ in range(size)]

    def of(self, rank: int) -> "PipeRank":
        return PipeRank(self._pipes, rank)


class PipeRank:
    def __init__(self, pipes: Any, rank: int) -> None:
        self._pipes, self._rank = pipes, rank

    def Get_rank(self) -> int:  # noqa: N802
        return self._rank

    def Get_size(self) -> int:  # noqa: N802
        return len(self._pipes)

    def allgather(self, value: Any) -> list[Any]:
        for pipe in self._pipes[self._rank]:
            pipe[1].send(value)
        return [row[self._rank][0].recv() for row in self._pipes]

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]


# ---- meeting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("crowded", [True, False])
def test_all_start_together_after_the_last(crowded: bool) -> None:
    words, size, rounds = memory(2), 2, 50

    def body(rank: int) -> list[tuple[int, int, int]]:
        meeting = Meeting(words, rank, size, crowded=crowded)
        seen = []
        for i in range(rounds):
            if i % 10 == rank:
                time.sleep(0.005)
            arrival = 20_000 * rank
            came = meeting.now()
            start = meeting.wait(arrival)
            seen.append((came, start, meeting.now() - arrival))
        return seen

    for one, other in zip(*ranks.thread_ranks(size, body), strict=True):
        assert one[1] == other[1], "the ranks do not agree on the start"
        assert one[1] >= max(one[0], other[0]), "somebody had not come"
        if not crowded:
            assert one[1] <= min(one[2], other[2]), "a rank did not wait for the start"


def test_crowded_ranks_wait_for_their_arrival_too() -> None:
    meeting = Meeting(memory(1), 0, 1, crowded=True)
    for arrival in (100_000, 10_000_000):
        assert meeting.wait(arrival) + arrival <= meeting.now()
    assert meeting.missed == 0


def test_starts_that_have_gone_by_are_counted() -> None:
    meeting = Meeting(memory(1), 0, 1, crowded=False, margin_ns=-1)
    for i in range(3):
        assert meeting.missed == i
        meeting.wait()
    meeting.wait(1_000_000)
    assert meeting.missed == 3


def test_clocks_are_corrected() -> None:
    meeting = Meeting(memory(1), 0, 1, crowded=False, correction_ns=10**15)
    before = now()
    start = meeting.wait(1000)
    assert before + 10**15 <= start <= meeting.now() - 1000
    assert meeting.now() <= now() + 10**15


def test_who_has_left_is_not_waited_for() -> None:
    words = memory(2)
    stays, leaves = (Meeting(words, rank, 2, crowded=True) for rank in range(2))
    leaves.leave()
    leaves.leave()
    with pytest.raises(PeerLeftError, match="rank 1 has left"):
        stays.meet()


def test_a_rank_that_has_come_may_leave_before_it_is_seen() -> None:
    words = memory(2)
    slow, quick = (Meeting(words, rank, 2, crowded=True) for rank in range(2))

    def come_and_leave(*_: object) -> None:  # between two looks of the rank that waits
        quick.meet()
        quick.leave()

    def send() -> None:
        while not any(words[:]):  # until it has come
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, come_and_leave)
    sender = threading.Thread(target=send)
    try:
        sender.start()
        slow.meet()
    finally:
        sender.join()
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(PeerLeftError):
        slow.meet()


def test_a_rank_that_does_not_come_in_time() -> None:
    meeting = Meeting(memory(2), 1, 2, crowded=True, timeout=0.01)
    with pytest.raises(TimeoutError, match=r"rank 0 has not come.*timeout=0\.01"):
        meeting.wait()


def test_a_line_goes_from_core_to_core_and_back() -> None:
    words = memory(3)

    def body(rank: int) -> list[float | None]:
        meeting = Meeting(words, rank, 3, crowded=False)
        return [meeting.round_trip(volleys=3) for _ in range(2)]

    for times in ranks.thread_ranks(3, body):
        assert all(time is not None and time > 0 for time in times)
    for size in (1, 2):
        assert Meeting(memory(size), 0, size, crowded=size == 2).round_trip() is None
    with pytest.raises(ValueError, match="volleys=0"):
        Meeting(memory(2), 0, 2, crowded=False).round_trip(volleys=0)


def test_a_meeting_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="rank=2"):
        Meeting(memory(2), 2, 2, crowded=True)
    with pytest.raises(ValueError, match=f"need {words_of(3)}"):
        Meeting(bytearray(words_of(2)), 0, 3, crowded=True)
    with pytest.raises(BufferError):
        Meeting(bytes(words_of(2)), 0, 2, crowded=True)
    meeting = Meeting(memory(1), 0, 1, crowded=True)
    with pytest.raises(RuntimeError, match="before"):
        meeting.__init__(memory(1), 0, 1, crowded=True)


# ---- start ---------------------------------------------------------------------------------------


def test_a_dead_rank_is_not_waited_for() -> None:
    pipes = Pipes(2)

    def body(rank: int, _: Segment, tell: Callable[[Any], None]) -> None:
        start = Start(pipes.of(rank), crowded=True, shared=True)  # type: ignore[arg-type]
        start.meet()
        tell("met")
        if rank == 1:
            signal.pause()
        start.meet()

    with ranks.ForkedRanks({"size": 2, "count": 1}, body) as forked:
        for rank in range(2):
            assert forked.told(rank) == "met"
        os.kill(forked.pid(1), signal.SIGKILL)  # and stays a zombie until rank 0 has noticed
        with pytest.raises(AssertionError, match=r"PeerLeftError: rank 1 \(process \d+\) is dead"):
            forked.result(0)


def test_processes_are_told_apart() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        started = _started(child.pid)
        assert started.isdecimal()
        assert _same_process(child.pid, started)
        assert not _same_process(child.pid, started + "0"), "another process of that number"
    finally:
        child.kill()
    while _started(child.pid):  # a zombie soon
        time.sleep(0.001)
    child.wait()
    assert not _same_process(child.pid, started)


def test_a_start_leaves_no_file_and_says_why_there_is_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, make = [], tempfile.mkstemp

    def mkstemp(**options: str) -> tuple[int, str]:
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    with Start(Pipes(1).of(0), crowded=True, shared=True) as start:  # type: ignore[arg-type]
        assert start.shared
        ((_, name),) = made
        assert name.startswith("/dev/shm/")
        assert not Path(name).exists()
        assert start.drift() == 0

    def refused(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    with pytest.raises(OSError, match="shared=True: no space left"):
        Start(Pipes(1).of(0), crowded=True, shared=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="offset_ns=5"):
        Start(Pipes(1).of(0), crowded=True, offset_ns=5)  # type: ignore[arg-type]
