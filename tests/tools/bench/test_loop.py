"""The benchmarks' timed loop in C, without MPI."""

import ctypes
import mmap
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks

from wagma.benchmarks import native
from wagma.benchmarks._loop import Meeting, mpi_call, now, outcome_dtype, run, words_of
from wagma.collectives import Handle, Segment, StallError, _engine

COUNT = 4
NBYTES = 4 * COUNT


def memory(size: int) -> mmap.mmap:
    return mmap.mmap(-1, words_of(size))


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
    late_by = 20_000_000
    options = {"quorum": 1, "grace": 0.0}
    punctual, late = loop(options, [0, late_by], 30, out_of_place=out_of_place)
    # On a busy machine it may come so late itself that it finds the other one there.
    after = punctual.ended < late.began
    assert after.any()
    assert late.outcomes["late"][after].all()
    assert not punctual.outcomes["late"][after].any()
    assert (late.began[1:] - late_by >= punctual.ended[:-1]).all(), "arrived before its time"
    for rank, noted in enumerate((punctual, late)):
        assert noted.outcomes["version"].tolist() == list(range(30))
        for i, outcome in enumerate(noted.outcomes):
            assert rank in outcome["contributors"][: outcome["n"]]
            if outcome["merged"]:
                assert (noted.results[i] == expected(rank, outcome)).all(), outcome


def test_several_results_of_a_call_are_counted() -> None:
    punctual, late = loop({"quorum": 1, "late": 1, "grace": 0.0}, [0, 20_000_000], 12)
    for noted in (punctual, late):
        assert (noted.outcomes["results"] >= 1).all()
    after = punctual.ended < late.began
    assert after.any()
    assert late.outcomes["late"][after].all()


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
    iterations = 1 << 26 if where == "loop" else 1
    times = np.frombuffer(mmap.mmap(-1, 8 * iterations), np.int64)  # of a call as soon as it begins

    def body(rank: int, segment: Segment, _: Callable[[Any], None]) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with Handle(segment, rank) as handle:
            if rank == 1:
                signal.pause()
            meeting = Meeting(words, 0, 2, crowded=True) if where == "meeting" else None
            x = np.zeros(COUNT, np.float32)
            call = native.wagma_call(handle)
            run(meeting, call, x.ctypes.data, np.zeros((1, NBYTES), np.uint8), times, times, times)

    size = 1 if where == "loop" else 2  # a rank that never comes
    with ranks.ForkedRanks({"size": size, "count": COUNT}, body) as forked:
        until = time.monotonic() + ranks.LIVENESS_S
        while not (any(words[:]) if where == "meeting" else times[0]):  # until it is in the loop
            if time.monotonic() > until:
                forked.result(0)  # raises what has kept it
            time.sleep(0.001)
        forked.signal(0, signal.SIGINT)
        with pytest.raises(AssertionError, match=r"KeyboardInterrupt(.|\n)*_loop\.run"):
            forked.result(0)


def test_what_a_call_raises_is_raised() -> None:
    segment = Segment.create({"size": 2, "count": COUNT, "timeout": 2.7})
    handles = ranks.thread_ranks(2, lambda rank: Handle(segment, rank))
    x = np.zeros(COUNT, np.float32)
    times = np.zeros(3, np.int64)
    with pytest.raises(StallError, match="for rank 1,"):
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
