"""The benchmarks' common start and their timed loop in C, without MPI."""

import ctypes
import mmap
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest
import ranks

from wagma.benchmarks import clock, native
from wagma.benchmarks._loop import (
    Meeting,
    PeerLeftError,
    mpi_call,
    now,
    outcome_dtype,
    run,
    wagma_call,
    words_of,
)
from wagma.benchmarks.start import Start, _same_process, _started
from wagma.collectives import Handle, HandleError, Segment, StallError, _engine

COUNT = 4
NBYTES = 4 * COUNT


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


# ---- clocks --------------------------------------------------------------------------------------


def test_the_fastest_round_trip_gives_the_offset() -> None:
    # The other clock is 1000 ahead. The second answer took 10 ns there and 30 ns back.
    found = clock.estimate([0, 100, 200], [1200, 1110, 1290], [300, 140, 330])
    assert found == clock.Estimate(offset_ns=1110 - 120, round_trip_ns=40)
    assert found.error_ns == 20
    assert abs(found.offset_ns - 1000) <= found.error_ns


def test_offsets_are_within_half_a_round_trip() -> None:
    generator = np.random.default_rng(1)
    for true in (-(10**15), -7, 0, 123, 10**12):
        sent = np.cumsum(generator.integers(1000, 5000, 50))
        there, back = generator.integers(100, 900, (2, 50))
        answers = (sent + there + true).tolist()
        found = clock.estimate(sent.tolist(), answers, (sent + there + back).tolist())
        assert found.round_trip_ns == (there + back).min()
        assert abs(found.offset_ns - true) <= found.error_ns


def test_estimates_refuse_what_no_clock_can_have_said() -> None:
    with pytest.raises(ValueError, match="empty"):
        clock.estimate([], [], [])
    with pytest.raises(ValueError, match="shorter"):
        clock.estimate([1, 2], [1, 2], [3])
    with pytest.raises(ValueError, match="shorter"):
        clock.estimate([1], [1, 2], [3])
    with pytest.raises(ValueError, match="before its question"):
        clock.estimate([10], [5], [9])


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
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208
    with Start(Pipes(1).of(0), crowded=True, shared=True) as start:  # type: ignore[arg-type]
        assert start.shared
        assert not {
            name
            for name in set(os.listdir("/dev/shm")) - before  # noqa: PTH208
            if name.startswith("wagma-benchmark-")
        }
        assert start.drift() == 0

    def refused(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    with pytest.raises(OSError, match="shared=True: no space left"):
        Start(Pipes(1).of(0), crowded=True, shared=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="offset_ns=5"):
        Start(Pipes(1).of(0), crowded=True, offset_ns=5)  # type: ignore[arg-type]


# ---- the loop around wagma -----------------------------------------------------------------------


def contribution(rank: int, version: int) -> np.ndarray:
    """What `rank` contributes to `version`; -1: zeros, given at creation."""
    scale = 0 if version < 0 else (1 + version % 3) * 16**rank
    return np.arange(1, COUNT + 1, dtype=np.float32) * np.float32(scale)


class Noted:
    """What a rank's loop has noted."""

    def __init__(self, iterations: int, size: int) -> None:
        self.arrivals, self.began, self.ended = np.zeros((3, iterations), np.int64)
        self.results = np.zeros((iterations, COUNT), np.float32)
        self.outcomes = np.zeros(iterations, outcome_dtype(size))


def loop(
    options: dict[str, Any], arrivals: list[int], iterations: int, *, out_of_place: bool = False
) -> list[Noted]:
    """The loop on as many ranks, which are threads, as there are arrivals."""
    size = len(arrivals)
    words = memory(size)
    segment = Segment.create({"size": size, "count": COUNT, "average": 0, **options})

    def body(rank: int) -> Noted:
        noted = Noted(iterations, size)
        noted.arrivals[:] = arrivals[rank]
        inputs = np.array([contribution(rank, row) for row in range(3)])
        x = np.zeros(COUNT, np.float32)
        meeting = Meeting(words, rank, size, crowded=True)
        with Handle(segment, rank) as handle:
            run(
                meeting,
                native.wagma_call(handle),
                0 if out_of_place else x.ctypes.data,
                inputs.view(np.uint8),
                noted.arrivals,
                noted.began,
                noted.ended,
                noted.results.view(np.uint8),
                noted.outcomes,
            )
            assert handle.version == iterations
            meeting.meet()  # nobody departs before the others have made their last call
        return noted

    return ranks.thread_ranks(size, body)


def expected(rank: int, outcome: Any) -> np.ndarray:
    """The sum that an outcome says; a late rank adds its own."""
    n = outcome["n"]
    holds = zip(outcome["contributors"][:n].tolist(), outcome["versions"][:n].tolist(), strict=True)
    total = sum((contribution(*one) for one in holds), np.zeros(COUNT, np.float32))
    return total + contribution(rank, outcome["version"]) if outcome["late"] else total


def test_every_result_of_the_synchronous_form_is_noted() -> None:
    everything = loop({}, [0, 0], 40)
    for noted in everything:
        for i, outcome in enumerate(noted.outcomes):
            assert (outcome["version"], outcome["late"], outcome["merged"]) == (i, 0, 1)
            assert outcome["n"] == 2
            assert outcome["contributors"].tolist() == [0, 1]
            assert outcome["versions"].tolist() == [i, i]
            assert (noted.results[i] == contribution(0, i) + contribution(1, i)).all(), i
    began, ended = (np.array([getattr(n, k) for n in everything]) for k in ("began", "ended"))
    assert (began <= ended).all()
    assert (began[:, 1:] >= ended[:, :-1].max(axis=0)).all(), "a call began before all had come"
    assert (ended >= began.max(axis=0)).all(), "a rank left before the last had come"


@pytest.mark.parametrize("out_of_place", [False, True])
def test_late_contributions_are_noted_as_late(out_of_place: bool) -> None:
    late_by = 3_000_000
    options = {"quorum": 1, "grace": 0.0}
    punctual, late = loop(options, [0, late_by], 30, out_of_place=out_of_place)
    assert late.outcomes["late"].any()
    assert punctual.outcomes["late"].sum() < late.outcomes["late"].sum()
    assert (late.began[1:] - late_by >= punctual.ended[:-1]).all(), "arrived before its time"
    for rank, noted in enumerate((punctual, late)):
        assert noted.outcomes["version"].tolist() == list(range(30))
        for i, outcome in enumerate(noted.outcomes):
            assert rank in outcome["contributors"][: outcome["n"]]
            if outcome["merged"]:
                assert (noted.results[i] == expected(rank, outcome)).all(), outcome


def test_several_results_of_a_call_are_counted() -> None:
    punctual, late = loop({"quorum": 1, "late": 1, "grace": 0.0}, [0, 2_000_000], 12)
    for noted in (punctual, late):
        assert (noted.outcomes["results"] >= 1).all()
    assert late.outcomes["late"].any()


def alone(iterations: int, **options: Any) -> tuple[Any, ...]:
    handle = Handle(Segment.create({"size": 1, "count": COUNT, **options}), 0)
    x = np.ones(COUNT, np.float32)
    arrivals, began, ended = np.zeros((3, iterations), np.int64)
    return handle, x, np.ones((1, NBYTES), np.uint8), arrivals, began, ended


def test_one_rank_needs_no_meeting() -> None:
    handle, x, inputs, arrivals, began, ended = alone(10)
    with handle:
        run(None, native.wagma_call(handle), x.ctypes.data, inputs, arrivals, began, ended)
    assert (began[1:] >= ended[:-1]).all()
    assert (began > 0).all()
    assert (x.view(np.uint8) == 1).all(), "x was not filled"


def test_times_are_of_the_common_clock() -> None:
    ahead = 10**15
    handle, x, inputs, arrivals, began, ended = alone(3)
    meeting = Meeting(memory(1), 0, 1, crowded=False, correction_ns=ahead)
    before = now() + ahead
    with handle:
        run(meeting, native.wagma_call(handle), x.ctypes.data, inputs, arrivals, began, ended)
    assert before <= began[0] <= ended[0] <= began[1] <= ended[2] <= now() + ahead


@pytest.mark.parametrize("where", ["meeting", "call", "loop"])
def test_ctrl_c(where: str) -> None:
    words = memory(2)

    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with Handle(segment, rank) as handle:
            if rank == 1:
                signal.pause()
            meeting = Meeting(words, 0, 2, crowded=True) if where == "meeting" else None
            iterations = 1 << 26 if where == "loop" else 1
            x = np.zeros(COUNT, np.float32)
            times = np.zeros(iterations, np.int64)  # nobody looks at them
            tell("in the loop soon")
            call = native.wagma_call(handle)
            run(meeting, call, x.ctypes.data, np.zeros((1, NBYTES), np.uint8), times, times, times)

    size = 1 if where == "loop" else 2  # a rank that never comes
    with ranks.ForkedRanks({"size": size, "count": COUNT}, body) as forked:
        assert forked.told(0) == "in the loop soon"
        time.sleep(0.2)
        forked.signal(0, signal.SIGINT)
        with pytest.raises(AssertionError, match=r"KeyboardInterrupt(.|\n)*_loop\.run"):
            forked.result(0)


def test_what_a_call_raises_is_raised() -> None:
    segment = Segment.create({"size": 2, "count": COUNT, "timeout": 0.05})
    handles = ranks.thread_ranks(2, lambda rank: Handle(segment, rank))
    x = np.zeros(COUNT, np.float32)
    times = np.zeros(3, np.int64)
    with pytest.raises(StallError, match="ranks 1"):
        run(
            None,
            native.wagma_call(handles[0]),
            x.ctypes.data,
            np.zeros((1, NBYTES), np.uint8),
            times,
            times.copy(),
            times.copy(),
        )
    for handle in handles:
        handle.fail()


# ---- the loop around MPI's function --------------------------------------------------------------


class Function:
    """Stands for MPI_Allreduce: doubles what it gets."""

    def __init__(self, handle: Any, fails_at: int | None = None) -> None:
        void = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, void, void, ctypes.c_int, handle, handle, handle)
        self.calls: list[tuple[Any, ...]] = []
        self._fails_at = fails_at
        self._function = kind(self._call)
        self.address = ctypes.cast(self._function, void).value

    def _call(self, sendbuf: int, recvbuf: int, *others: int) -> int:
        self.calls.append((sendbuf, recvbuf, *others))
        if len(self.calls) - 1 == self._fails_at:
            return 17
        vectors = (ctypes.c_float * COUNT).from_address(sendbuf)
        ctypes.memmove(recvbuf, (ctypes.c_float * COUNT)(*(2 * v for v in vectors)), NBYTES)
        return 0


@pytest.mark.parametrize(
    ("handle", "large"), [(ctypes.c_int, -5), (ctypes.c_void_p, (1 << 40) + 1)]
)
def test_arguments_of_mpi_reach_it(handle: Any, large: int) -> None:
    function = Function(handle)
    sendbuf, recvbuf = np.zeros((2, COUNT), np.float32)
    call = mpi_call(
        function=function.address,
        sendbuf=sendbuf.ctypes.data,
        recvbuf=recvbuf.ctypes.data,
        count=COUNT,
        datatype=large,
        op=large + 1,
        comm=large + 2,
        handle_bytes=ctypes.sizeof(handle),
        error=ValueError,
    )
    inputs = np.arange(3 * COUNT, dtype=np.float32).reshape(3, COUNT)
    arrivals, began, ended = np.zeros((3, 5), np.int64)
    results = np.zeros((5, COUNT), np.float32)
    before = now()
    run(
        Meeting(memory(1), 0, 1, crowded=False),
        call,
        sendbuf.ctypes.data,
        inputs.view(np.uint8),
        arrivals,
        began,
        ended,
        results.view(np.uint8),
    )
    expected = (sendbuf.ctypes.data, recvbuf.ctypes.data, COUNT, large, large + 1, large + 2)
    assert function.calls == [expected] * 5
    assert (results == 2 * inputs[[0, 1, 2, 0, 1]]).all()
    assert before <= began[0]
    assert (began <= ended).all()


def test_the_status_of_mpi_becomes_its_exception() -> None:
    function = Function(ctypes.c_int, fails_at=2)
    x, out = np.zeros((2, COUNT), np.float32)
    call = mpi_call(
        function=function.address,
        sendbuf=x.ctypes.data,
        recvbuf=out.ctypes.data,
        count=COUNT,
        datatype=1,
        op=2,
        comm=3,
        handle_bytes=4,
        error=lambda status: LookupError(f"status {status}"),
    )
    arrivals, began, ended = np.zeros((3, 5), np.int64)
    with pytest.raises(LookupError, match="status 17"):
        run(None, call, x.ctypes.data, np.zeros((1, NBYTES), np.uint8), arrivals, began, ended)
    assert len(function.calls) == 3
    assert (ended[:3] > 0).all()
    assert (ended[3:] == 0).all()


def test_functions_that_are_not_there() -> None:
    with pytest.raises(native.NotFoundError, match="wagma_no_such"):
        native.address(_engine.__file__, "wagma_no_such")
    with pytest.raises(native.NotFoundError, match=r"not-loaded\.so"):
        native.address("/not-loaded.so", "wagma_start")


def test_the_loop_refuses_what_does_not_fit() -> None:
    handle, x, inputs, arrivals, began, ended = alone(5)
    function = Function(ctypes.c_int)
    other = mpi_call(
        function=function.address,
        sendbuf=0,
        recvbuf=0,
        count=0,
        datatype=0,
        op=0,
        comm=0,
        handle_bytes=4,
        error=ValueError,
    )
    outcomes = np.zeros(5, outcome_dtype(2))
    results = np.zeros((5, NBYTES + 1), np.uint8)
    with handle:
        call = native.wagma_call(handle)
        a = x.ctypes.data
        for arguments, named in (
            ((call, a, inputs, arrivals, began[:4], ended), "began has 4"),
            ((call, a, inputs[:0], arrivals, began, ended), "no rows"),
            ((call, a, inputs, arrivals, began, ended, results), "results"),
            ((call, a, inputs, arrivals, began, ended, None, outcomes), r"outcome_dtype\(1\)"),
            ((other, 0, inputs, arrivals, began, ended), "x_address=0"),
            ((other, a, inputs, arrivals, began, ended, None, outcomes), "outcomes"),
        ):
            with pytest.raises(ValueError, match=named):
                run(None, *arguments)
        assert handle.version == 0
    assert function.calls == []
    with pytest.raises(TypeError, match="wagma_call"):
        type(call)()


# ---- a handle that is lent -----------------------------------------------------------------------


def test_a_lent_handle_is_in_use(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as handle:
        lent = handle.lend()
        assert lent.address == 0
        with lent:
            assert lent.address != 0
            refused: list[BaseException] = []

            def second() -> None:
                try:
                    handle.allreduce(x)
                except HandleError as error:
                    refused.append(error)

            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
            assert "in use" in str(refused[0])
            with pytest.raises(HandleError, match="in use"), handle.lend():
                pass
            with pytest.raises(HandleError, match="in use"):
                handle.close()
        assert lent.address == 0
        assert handle.allreduce(x).version == 0


def test_c_code_calls_a_lent_handle(x: np.ndarray) -> None:
    allreduce = ctypes.CDLL(_engine.__file__).wagma_allreduce
    allreduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p]
    outcome = (ctypes.c_int64 * 32)()
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as handle:
        with handle.lend() as lent:
            for version in range(3):
                assert allreduce(lent.address, x.ctypes.data, 1.0, outcome) == 0
                assert outcome[0] == version
            status = allreduce(lent.address, x.ctypes.data, -1.0, outcome)
            error = lent.error(status)
        assert isinstance(error, ValueError)
        assert "weight" in str(error)
        assert handle.allreduce(x).version == 3


def test_a_handle_that_is_busy_cannot_be_lent(x: np.ndarray) -> None:
    pair = ranks.pair(quorum=1)
    array = pair[0].next_contribution()
    with pytest.raises(HandleError, match="next_contribution"), pair[0].lend():
        pass
    array[...] = 0
    outcome = pair[0].allreduce(array)
    with pair[0].lend():
        pass
    with pytest.raises(HandleError, match="fetched in time"):
        _ = outcome.result
    request = pair[1].iallreduce(x)
    with pytest.raises(HandleError, match="is pending"), pair[1].lend():
        pass
    request.wait()
    for handle in pair:
        handle.close()
    with pytest.raises(HandleError, match="closed"), pair[0].lend():
        pass


def test_a_lent_handle_can_be_failed() -> None:
    handle = Handle(Segment.create({"size": 1, "count": 3}), 0)
    with handle.lend() as lent:
        handle.fail()
        assert lent.address != 0, "the C code may be in a call"
    handle.fail()
    assert handle.closed


def test_wagma_calls_have_their_functions_by_address(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as handle:
        path = _engine.__file__
        call = wagma_call(
            handle,
            weight=-1.0,
            allreduce=native.address(path, "wagma_allreduce"),
            next_contribution=native.address(path, "wagma_next_contribution"),
        )
        times = np.zeros(1, np.int64)
        with pytest.raises(ValueError, match="weight"):
            run(None, call, x.ctypes.data, np.zeros((1, 12), np.uint8), times, times, times)
