"""iallreduce: posting counts as arrival, requests complete once, and every misuse is said."""

import array
import gc
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import torch

from wagma.collectives import Handle, HandleError, PeerError, Request, Segment, StallError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

LARGE = 20_011
QUORUMS = pytest.mark.parametrize("quorum", [0, 1])  # 0: all; each has an executor of its own


def waiting_pair(quorum: int, **options: float) -> tuple[Handle, Handle]:
    """Two ranks whose versions need both of them, with either executor."""
    return ranks.pair(quorum=quorum, sync_period=1, **options)


def both(coll: Handle, x: np.ndarray) -> None:
    """The version for which the other rank has posted, and the next."""
    coll.allreduce(x)
    coll.allreduce(x)


def poll(request: Request) -> Any:
    """Tests until the request is complete, or raises."""
    deadline = time.monotonic() + ranks.LIVENESS_S
    while (outcome := request.test()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return outcome


# ---- what it does --------------------------------------------------------------------------------


@QUORUMS
@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("complete", [Request.wait, Request.test], ids=["wait", "test"])
def test_posting_counts_as_arriving(
    quorum: int, count: int, complete: Callable[[Request], Any]
) -> None:
    """The other rank gets the posted contribution and does not wait, although nobody calls."""
    a, b = ranks.pair(quorum=quorum, count=count, grace=30.0, average=0)
    for version in range(3):
        x, y = np.full(count, 1, np.float32), np.full(count, 10, np.float32)
        request = a.iallreduce(x)
        assert request.version == a.version == version
        assert b.allreduce(y).contributors == (0, 1)
        assert (x == 1).all()
        outcome = complete(request)
        assert outcome.version == version
        assert not outcome.late
        assert outcome.contributors == (0, 1)
        assert outcome.waited == 0
        assert (x == 11).all()
        assert (y == 11).all()
    assert a.stats().calls == a.version == 3
    a.close()
    b.close()


@QUORUMS
def test_both_ranks_post(quorum: int) -> None:
    a, b = waiting_pair(quorum, average=0)
    x, y = np.full(3, 1, np.float32), np.full(3, 10, np.float32)
    first = a.iallreduce(x, 2)
    assert first.test() is None
    second = b.iallreduce(y)
    assert poll(second).weight == 3
    assert first.wait(timeout=30).weight == 3
    assert x.tolist() == y.tolist() == [12, 12, 12]
    a.close()
    b.close()


@QUORUMS
def test_posting_does_not_wait_for_the_window(quorum: int) -> None:
    a, b = ranks.pair(quorum=1, window=2, group_size=2 if quorum else 1, grace=0.0)
    x = np.ones(3, np.float32)
    for _ in range(2):
        a.allreduce(x)
    request = a.iallreduce(x)
    assert request.test() is None
    with pytest.raises(TimeoutError, match=r"version 2 .*window.*rank 1"):
        request.wait(0.01)
    b.allreduce(np.ones(3, np.float32))
    assert request.wait().version == 2
    a.close()
    b.close()


@QUORUMS
@pytest.mark.parametrize("count", [3, LARGE])
def test_what_is_computed_while_pending_is_not_waited_for(quorum: int, count: int) -> None:
    """Rank 1 is late by the time that rank 0 computes: rank 0 finds the version complete."""

    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> float:
        x = np.ones(count, np.float32)
        with Handle(segment, rank, x) as coll:
            if rank == 1:
                time.sleep(0.2)
                coll.allreduce(x)
                tell("done")
                return 0.0
            request = coll.iallreduce(x)
            tell("posted")
            while not go.is_set():
                time.sleep(0.001)
            return request.wait().waited

    go = ranks.multiprocessing.get_context("fork").Event()
    options = {"size": 2, "count": count, "quorum": quorum, "sync_period": 1}
    with ranks.ForkedRanks(options, body) as forked:
        assert forked.told(0) == "posted"
        assert forked.told(1) == "done"
        go.set()
        assert forked.result(0) == 0
        forked.result(1)


@QUORUMS
def test_a_stopped_rank_has_posted(quorum: int) -> None:
    """The others complete the version with its contribution; with a quorum they go on."""
    size, at, window = 3, 2, 5

    def body(rank: int, segment: Segment, tell: Callable[[Any], None]) -> list[tuple[int, ...]]:
        x = np.zeros(LARGE, np.float32)
        seen = []
        with Handle(segment, rank, x) as coll:
            for version in range(at + window):
                x[:] = 10**rank
                if version == at and rank != 1:
                    while not go.is_set():
                        time.sleep(0.001)
                request = coll.iallreduce(x)
                if version == at and rank == 1:
                    tell("posted")
                    time.sleep(3600)  # until it is killed; stopped in go.is_set() it would lock it
                outcome = request.wait()
                seen.append(dict(zip(outcome.contributors, outcome.versions, strict=True)))
                tell((version, bool(x.any())))
        return seen

    go = ranks.multiprocessing.get_context("fork").Event()
    options = {
        "size": size,
        "count": LARGE,
        "quorum": quorum,
        "window": window,
        "average": 0,
        "grace": 0.0,
    }
    reach = at + window - 1 if quorum else at
    with ranks.ForkedRanks(options, body) as forked:
        while forked.told(1) != "posted":
            pass
        forked.signal(1, signal.SIGSTOP)
        go.set()
        for rank in (0, 2):
            while forked.told(rank)[0] < reach:
                pass
        forked.signal(1, signal.SIGKILL)


@QUORUMS
def test_other_kinds_of_arrays(quorum: int) -> None:
    a, b = ranks.pair(quorum=quorum, average=0, grace=30.0)
    for x in (
        torch.ones(3),
        array.array("f", [1, 1, 1]),
        memoryview(np.ones(3, np.float32)),
        np.ones((2, 3), np.float32)[1],
    ):
        request = a.iallreduce(x)
        b.allreduce(np.ones(3, np.float32))
        request.wait()
        assert list(x) == [2, 2, 2]
    a.close()
    b.close()


def test_arrays_without_elements() -> None:
    a, b = ranks.pair(count=0)
    for x in (np.zeros(0, np.float32), torch.zeros(0)):
        request = a.iallreduce(x)
        b.allreduce(np.zeros(0, np.float32))
        assert request.wait().contributors == (0, 1)
    a.close()
    b.close()


def test_another_thread_may_complete_a_request(x: np.ndarray) -> None:
    a, b = ranks.pair(average=0)
    request = a.iallreduce(x)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(request.wait()))
    thread.start()
    deadline = time.monotonic() + ranks.LIVENESS_S
    while True:  # until the thread waits inside its call
        try:
            a.empty()
        except HandleError as error:
            if "in use" in str(error):
                break
        assert time.monotonic() < deadline
    with pytest.raises(HandleError, match="in use"):
        request.test()
    b.allreduce(np.ones(3, np.float32))
    thread.join(ranks.LIVENESS_S)
    assert seen[0].version == 0
    assert (x == 2).all()
    a.close()
    b.close()


# ---- time and trouble ----------------------------------------------------------------------------


@QUORUMS
def test_a_wait_that_ends_in_time_can_be_repeated(quorum: int, x: np.ndarray) -> None:
    a, b = waiting_pair(quorum, average=0)
    request = a.iallreduce(x)
    for timeout in (0, 0.01, 0.06):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"version 0 .*rank 1.*again") as caught:
            request.wait(timeout)
        assert not isinstance(caught.value, StallError)
        assert time.monotonic() - began >= timeout
    assert (x == 1).all()
    b.allreduce(np.ones(3, np.float32))
    assert request.wait(float("inf")).waited >= 0.07
    assert (x == 2).all()
    a.close()
    b.close()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_wrong_timeouts(x: np.ndarray, timeout: float) -> None:
    a, b = ranks.pair()
    request = a.iallreduce(x)
    with pytest.raises(ValueError, match="timeout="):
        request.wait(timeout)
    with pytest.raises(TypeError):
        request.wait("soon")
    b.allreduce(x.copy())
    request.wait()
    a.close()
    b.close()


@QUORUMS
@pytest.mark.parametrize("complete", [Request.wait, poll], ids=["wait", "test"])
def test_a_failed_rank(quorum: int, complete: Callable[[Request], Any], x: np.ndarray) -> None:
    a, b = waiting_pair(quorum)
    request = a.iallreduce(x)
    b.fail()
    with pytest.raises(PeerError, match="rank 1"):
        complete(request)
    assert x.flags.writeable
    with pytest.raises(HandleError, match=r"version 0.*complete"):
        request.wait()
    with pytest.raises(HandleError, match="failed earlier: rank 1 failed"):
        a.allreduce(x)
    a.close()


@QUORUMS
@pytest.mark.parametrize("complete", [Request.wait, poll], ids=["wait", "test"])
def test_a_stall(quorum: int, complete: Callable[[Request], Any], x: np.ndarray) -> None:
    """A loop around test() waits; what is computed between the post and a test is no waiting."""
    a, _b = waiting_pair(quorum, timeout=2.7)
    request = a.iallreduce(x)
    time.sleep(2.8)
    assert request.test() is None
    with pytest.raises(StallError, match=r"version 0 .*for rank 1,"):
        complete(request)
    assert x.flags.writeable


# ---- misuse --------------------------------------------------------------------------------------


def test_only_iallreduce_makes_requests() -> None:
    with pytest.raises(TypeError, match="iallreduce"):
        Request()


@QUORUMS
def test_a_request_is_completed_once(quorum: int, x: np.ndarray) -> None:
    a, b = ranks.pair(quorum=quorum, grace=30.0)
    for complete in (Request.wait, Request.test):
        request = a.iallreduce(x)
        assert "pending" in repr(request)
        b.allreduce(x.copy())
        complete(request)
        assert "complete" in repr(request)
        for again in (Request.wait, Request.test):
            with pytest.raises(HandleError, match=f"version {request.version}.*complete"):
                again(request)
    a.close()
    b.close()


@QUORUMS
def test_one_request_at_a_time(quorum: int, x: np.ndarray) -> None:
    a, b = waiting_pair(quorum)
    y = x.copy()
    request = a.iallreduce(x)
    for call in (
        lambda: a.iallreduce(y),
        lambda: a.allreduce(y),
        lambda: a.sync(y),
        a.empty,
        a.next_contribution,
        a.close,
        lambda: a.close(sync=True),
    ):
        with pytest.raises(HandleError, match=r"pending \(version 0\).*wait\(\)"):
            call()
    assert a.stats().calls == 0
    assert a.version == 0
    assert "pending" in repr(a)
    b.allreduce(y)
    assert request.wait().version == 0
    assert "pending" not in repr(a)
    a.close()
    b.close()


@QUORUMS
def test_refused_arguments_leave_everything_as_it_was(quorum: int, x: np.ndarray) -> None:
    a, b = waiting_pair(quorum, average=0)
    for wrong, weight, error in (
        (x, -1, ValueError),
        (x, "heavy", TypeError),
        (np.ones(4, np.float32), 1, ValueError),
        (np.ones(3), 1, TypeError),
        ("text", 1, TypeError),
    ):
        with pytest.raises(error):
            a.iallreduce(wrong, weight)
    assert x.flags.writeable
    request = a.iallreduce(x)
    b.allreduce(x.copy())
    assert request.wait().version == 0
    a.close()
    b.close()


@QUORUMS
def test_a_numpy_array_is_read_only_while_pending(quorum: int) -> None:
    a, b = waiting_pair(quorum, average=0)
    whole = np.ones((2, 3), np.float32)
    for x in (np.ones(3, np.float32), whole[1], a.empty()):
        x[:] = 1
        request = a.iallreduce(x)
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 5
        with pytest.raises(ValueError, match=r"read-only.* until its request is complete"):
            b.allreduce(x)
        b.allreduce(np.ones(3, np.float32))
        request.wait()
        assert (x == 2).all()
        x[0] = 5  # it can be written to again
    a.close()
    b.close()


def replace_data(x: torch.Tensor) -> None:
    x.data = torch.zeros(LARGE)


@QUORUMS
@pytest.mark.parametrize(
    "replace",
    [replace_data, lambda x: x.set_(torch.zeros(LARGE)), lambda x: x.resize_(2 * LARGE)],
    ids=["data", "set", "resize"],
)
def test_a_tensor_that_gets_other_memory_while_pending(
    quorum: int, replace: Callable[[torch.Tensor], Any]
) -> None:
    """Nothing is written to memory that was the tensor's, and is somebody else's now."""
    a, b = ranks.pair(quorum=quorum, count=LARGE, average=0, grace=30.0)
    x = torch.ones(LARGE)
    address = x.data_ptr()
    request = a.iallreduce(x)
    replace(x)
    b.allreduce(np.ones(LARGE, np.float32))
    others = [torch.full((LARGE,), 7.0) for _ in range(50)]
    assert x.data_ptr() != address
    for complete in (request.test, request.wait):
        with pytest.raises(HandleError, match=r"version 0 .*resize_.*fail\(\)"):
            complete()
    assert "pending" in repr(request)
    assert all((other == 7).all() for other in others)
    a.fail()
    b.close()


@QUORUMS
def test_a_tensor_whose_memory_comes_back(quorum: int) -> None:
    """The request has kept it, and goes on."""
    a, b = ranks.pair(quorum=quorum, average=0, grace=30.0)
    x = torch.ones(3)
    request = a.iallreduce(x)
    old = x.data
    x.data = torch.zeros(3)
    b.allreduce(np.ones(3, np.float32))
    with pytest.raises(HandleError, match="other memory"):
        request.wait()
    x.data = old
    request.wait()
    assert x.tolist() == [2, 2, 2]
    a.close()
    b.close()


def test_flags_that_could_not_be_restored_are_left_alone() -> None:
    """numpy cannot make an array over a tensor writable again."""
    a, b = ranks.pair(average=0)
    x = torch.ones(3).numpy()
    request = a.iallreduce(x)
    assert x.flags.writeable
    b.allreduce(np.ones(3, np.float32))
    request.wait()
    assert (x == 2).all()
    a.close()
    b.close()


def test_a_buffer_is_not_resized_while_pending() -> None:
    a, b = ranks.pair()
    x = array.array("f", [1, 1, 1])
    request = a.iallreduce(x)
    with pytest.raises(BufferError):
        x.append(1)
    b.allreduce(np.ones(3, np.float32))
    request.wait()
    x.append(1)
    a.close()
    b.close()


# ---- life ----------------------------------------------------------------------------------------


@QUORUMS
def test_a_request_keeps_array_and_handle(quorum: int) -> None:
    a, b = ranks.pair(quorum=quorum, average=0, grace=30.0)
    keep = np.ones(3, np.float32)
    request = a.iallreduce(keep.view())
    del a
    gc.collect()
    b.allreduce(np.ones(3, np.float32))
    assert request.wait().contributors == (0, 1)
    assert (keep == 2).all()
    del request  # and with it the rank
    with pytest.raises(PeerError, match="rank 0"):
        b.sync(np.ones(3, np.float32))


@QUORUMS
def test_a_dropped_request_is_said(quorum: int, x: np.ndarray) -> None:
    a, b = waiting_pair(quorum)
    request = a.iallreduce(x)
    with pytest.warns(ResourceWarning, match=r"version 0 \(rank 0\) was dropped"):
        del request
        gc.collect()
    assert x.flags.writeable
    for call in (lambda: a.allreduce(x), lambda: a.iallreduce(x), a.close):
        with pytest.raises(HandleError, match=r"version 0 was dropped.*fail\(\)"):
            call()
    a.fail()
    with pytest.raises(PeerError, match="rank 0"):
        both(b, x)


@QUORUMS
def test_leaving_the_block_with_a_pending_request(quorum: int, x: np.ndarray) -> None:
    a, b = waiting_pair(quorum)
    with pytest.raises(HandleError, match="pending"), a:
        request = a.iallreduce(x)
    assert a.closed
    assert x.flags.writeable
    with pytest.raises(HandleError, match="closed"):
        request.wait()
    with pytest.raises(PeerError, match="rank 0"):
        both(b, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del request  # nothing to warn of


@QUORUMS
def test_an_exception_in_the_block_ends_the_request(quorum: int, x: np.ndarray) -> None:
    a, _b = waiting_pair(quorum)
    with pytest.raises(ZeroDivisionError), a:
        request = a.iallreduce(x)
        raise ZeroDivisionError
    assert x.flags.writeable
    with pytest.raises(HandleError, match="closed"):
        request.test()
