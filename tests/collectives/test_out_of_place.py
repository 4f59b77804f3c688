"""next_contribution() and the arrays of outcomes: whose memory they are, and until when."""

import array
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks
import torch

from wagma.collectives import Handle, HandleError, Segment

LATE = pytest.mark.parametrize("late", [1, 2], ids=["skip", "carry"])
OUTDATED = r"version \d+ were not fetched in time"


def summing_pair(**options: float) -> tuple[Handle, Handle]:
    return ranks.pair(**{"quorum": 1, "average": 0, "grace": 30.0, **options})


def fill(coll: Handle, value: float) -> np.ndarray:
    buffer = coll.next_contribution()
    buffer[...] = value
    return buffer


# ---- next_contribution ---------------------------------------------------------------------------


def test_the_result_is_in_the_outcome() -> None:
    """The buffer keeps what was contributed; the result is a read-only array of the sum."""
    a, b = summing_pair()
    for version in range(6):
        x, y = fill(a, 1), np.full(3, 10, np.float32)
        request = a.iallreduce(x)
        assert b.allreduce(y).result is None
        outcome = request.wait()
        assert outcome.version == version
        assert (x == 1).all()
        assert outcome.result is not None
        assert outcome.result.tolist() == y.tolist() == [11, 11, 11]
        assert outcome.weight == 2
        assert outcome.results == ()
        with pytest.raises(ValueError, match="read-only"):
            outcome.result[0] = 1
    a.close()
    b.close()


def test_averages_are_handed_out_undivided() -> None:
    a, b = summing_pair(average=1)
    request = a.iallreduce(fill(a, 1), 3)
    y = np.full(3, 10, np.float32)
    b.allreduce(y)
    outcome = request.wait()
    assert outcome.result is not None
    assert outcome.result.tolist() == [13, 13, 13]
    assert outcome.weight == 4
    assert y.tolist() == [3.25] * 3
    a.close()
    b.close()


def test_late_numerators() -> None:
    """A late rank gets the result and its own contribution, R + c x."""
    a, b = summing_pair(grace=0.0)
    a.allreduce(np.full(3, 10, np.float32))
    outcome = b.allreduce(fill(b, 1), 2)
    assert outcome.late
    assert outcome.result is not None
    assert outcome.result.tolist() == [12, 12, 12]
    assert outcome.weight == 4  # 1, 1 of the contribution given at creation, 2
    a.close()
    b.close()


def test_an_unmerged_call_has_no_result() -> None:
    a, b = summing_pair(grace=0.0)
    for _ in range(3):
        a.allreduce(np.ones(3, np.float32))
    b.allreduce(np.ones(3, np.float32))  # merges version 2
    outcome = b.allreduce(fill(b, 1))
    assert outcome.late
    assert not outcome.merged
    assert outcome.result is None
    a.close()
    b.close()


def test_the_same_buffer_until_a_call_takes_it() -> None:
    a, b = summing_pair(grace=0.0)
    first = a.next_contribution()
    assert a.next_contribution() is first
    a.allreduce(np.ones(3, np.float32))
    assert a.next_contribution() is first
    with pytest.raises(ValueError, match="weight"):
        a.allreduce(first, -1)
    assert first.flags.writeable
    first[:] = 2
    a.allreduce(first)
    assert not first.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True
    second = a.next_contribution()
    assert second is not first
    assert second.flags.writeable
    a.close()
    b.close()


def test_shapes_and_dtypes() -> None:
    segment = Segment.create({"size": 1, "count": 6, "quorum": 1, "dtype": 3, "average": 0})
    with Handle(segment, 0) as coll, pytest.raises(ValueError, match=r"every member.*empty\(\)"):
        coll.next_contribution()
    segment = Segment.create(
        {"size": 2, "count": 6, "quorum": 1, "dtype": 3, "average": 0, "grace": 0.0}
    )

    def body(rank: int) -> None:
        with Handle(segment, rank, shape=(2, 3)) as coll:
            buffer = coll.next_contribution()
            assert buffer.shape == (2, 3)
            assert buffer.dtype == np.uint16
            x = torch.from_numpy(buffer).view(torch.bfloat16)
            x.fill_(1)
            result = coll.sync(x).result
            assert result is not None
            assert result.shape == (2, 3)
            result = torch.from_numpy(result.copy()).view(torch.bfloat16)
            assert (result == 2).all()
            assert not buffer.flags.writeable

    ranks.thread_ranks(2, body)


@pytest.mark.parametrize(("dtype", "average"), [(2, 1), (3, 1)])
def test_sixteen_bit_averages(dtype: int, average: int) -> None:
    a, b = ranks.pair(quorum=1, dtype=dtype, average=average)
    with pytest.raises(ValueError, match=r"dtype is .*average.*float32"):
        a.next_contribution()
    a.close()
    b.close()


def test_a_published_buffer_is_refused() -> None:
    a, b = summing_pair(grace=0.0)
    buffer = fill(a, 1)
    other = torch.from_numpy(buffer)
    a.allreduce(other)
    assert not buffer.flags.writeable
    for x in (buffer, other):
        for call in (a.allreduce, a.iallreduce, a.sync):
            with pytest.raises(ValueError, match=r"published: next_contribution\(\) gives another"):
                call(x)
    a.allreduce(fill(a, 1))
    a.close()
    b.close()


def test_the_buffer_of_another_handle_is_refused() -> None:
    a, b = summing_pair(grace=0.0)
    buffer = fill(a, 1)
    for x in (buffer, torch.from_numpy(buffer)):
        for call in (b.allreduce, b.iallreduce, b.sync):
            with pytest.raises(ValueError, match=r"another handle.*next_contribution\(\)"):
                call(x)
    assert b.version == 0
    fill(b, 1)
    b.allreduce(b.next_contribution())
    a.allreduce(buffer)
    a.close()
    b.close()


def test_a_buffer_outlives_its_handle() -> None:
    a, b = summing_pair(grace=0.0)
    buffer = fill(a, 7)
    a.close()
    b.close()
    del a, b
    gc.collect()
    assert (buffer == 7).all()
    c, d = summing_pair()
    with pytest.raises(ValueError, match="another handle"):
        c.allreduce(buffer)
    c.close()
    d.close()


def test_buffers_that_nobody_keeps_are_forgotten() -> None:
    a, b = summing_pair(grace=0.0)
    kept = weakref.ref(fill(a, 1))
    a.allreduce(a.next_contribution())
    gc.collect()
    assert kept() is None
    a.allreduce(np.ones(3, np.float32))
    a.close()
    b.close()


# ---- results -------------------------------------------------------------------------------------


@LATE
def test_results_in_order(late: int) -> None:
    """A rank that is behind gets all of them, oldest first, and its counter catches up."""
    a, b = summing_pair(late=late, grace=0.0, window=4)
    for version in range(3):
        outcome = a.allreduce(np.full(3, 10**version, np.float32))
        assert [result.tolist() for result in outcome.results] == [[10**version] * 3]
    y = np.full(3, 0.5, np.float32)
    outcome = b.allreduce(y)
    assert outcome.late
    assert (outcome.version, b.version) == (0, 3)
    results = outcome.results
    assert [result.tolist() for result in results] == [[1] * 3, [10] * 3, [100] * 3]
    assert y.tolist() == [100] * 3
    with pytest.raises(ValueError, match="read-only"):
        results[0][0] = 1
    a.close()
    b.close()


@LATE
def test_results_are_fetched_in_time_or_refused(late: int) -> None:
    a, b = summing_pair(late=late, grace=0.0)
    outcome = a.allreduce(np.ones(3, np.float32))
    fetched = outcome.results[0]
    with pytest.raises(ValueError, match="weight"):
        a.allreduce(np.ones(3, np.float32), -1)
    assert outcome.results[0].tolist() == [1, 1, 1]  # a refused call is none
    request = a.iallreduce(np.ones(3, np.float32))
    with pytest.raises(HandleError, match=OUTDATED):
        outcome.results  # noqa: B018
    outcome = request.wait()
    assert len(outcome.results) == 1
    a.close()
    with pytest.raises(HandleError, match=OUTDATED):
        outcome.results  # noqa: B018
    b.close()
    del a, b, outcome, request
    gc.collect()
    fetched.sum()  # what it says is nobody's business, but it is there


def test_a_result_is_fetched_in_time_or_refused() -> None:
    a, b = summing_pair(grace=0.0)
    outcome = a.allreduce(fill(a, 3))
    kept = outcome.result
    assert kept is not None
    assert kept.tolist() == [3, 3, 3]
    a.next_contribution()  # is no call
    assert outcome.result is not None
    a.allreduce(np.ones(3, np.float32))
    with pytest.raises(HandleError, match=OUTDATED):
        outcome.result  # noqa: B018
    a.close()
    b.close()


@LATE
@pytest.mark.parametrize("count", [pytest.param(3, marks=pytest.mark.long), 20_011])
def test_results_of_quorum_all_are_x(late: int, count: int) -> None:
    a, b = ranks.pair(quorum=0, late=late, average=0, count=count)
    for x in (np.full(count, 1, np.float32), torch.ones(count)):
        request = a.iallreduce(x)
        b.allreduce(np.full(count, 10, np.float32))
        outcome = request.wait()
        (result,) = outcome.results
        assert (result == 11).all()
        x[0] = 5
        assert result[0] == 5
        assert not result.flags.writeable
        del x
        gc.collect()
        others = [torch.full((count,), 7.0) for _ in range(50)]
        assert (result[1:] == 11).all()
        del others
    a.close()
    b.close()


def replace_data(x: torch.Tensor) -> None:
    x.data = torch.zeros(3)


@LATE
@pytest.mark.parametrize("replace", [replace_data, lambda x: x.set_(torch.zeros(3))])
@pytest.mark.parametrize("first", ["fetch", "replace"])
def test_results_stay_when_x_gets_other_memory(
    late: int, replace: Callable[[torch.Tensor], Any], first: str
) -> None:
    count = 1 << 20
    a, b = ranks.pair(quorum=0, late=late, average=0, count=count)
    x = torch.ones(count)
    request = a.iallreduce(x)
    b.allreduce(np.full(count, 10, np.float32))
    outcome = request.wait()
    if first == "replace":
        replace(x)
    (result,) = outcome.results
    if first == "fetch":
        replace(x)
    assert (result == 11).all()  # of freed memory of this size this would be a crash
    a.close()
    b.close()


@LATE
def test_results_of_a_resized_tensor_are_refused(late: int) -> None:
    a, b = ranks.pair(quorum=0, late=late)
    x = torch.ones(3)
    request = a.iallreduce(x)
    b.allreduce(np.ones(3, np.float32))
    outcome = request.wait()
    x.resize_(1 << 20)
    with pytest.raises(HandleError, match=r"resized.*`results`"):
        outcome.results  # noqa: B018
    a.close()
    b.close()


@LATE
def test_a_buffer_is_not_resized_as_long_as_it_is_a_result(late: int) -> None:
    a, b = ranks.pair(quorum=0, late=late)
    x = array.array("f", [1, 1, 1])
    request = a.iallreduce(x)
    b.allreduce(np.ones(3, np.float32))
    outcome = request.wait()
    with pytest.raises(BufferError):
        x.append(1)
    assert outcome.results[0].tolist() == [1, 1, 1]
    request = a.iallreduce(np.ones(3, np.float32))
    b.allreduce(np.ones(3, np.float32))
    request.wait()
    x.append(1)
    a.close()
    b.close()


def test_results_without_elements() -> None:
    segment = Segment.create({"size": 1, "count": 0, "late": 1})
    with Handle(segment, 0) as coll:
        for x in (np.zeros(0, np.float32), torch.zeros(0)):
            assert coll.allreduce(x).results[0].shape == (0,)


@LATE
@pytest.mark.parametrize("quorum", [0, 1])
def test_results_without_weight_are_none(late: int, quorum: int, x: np.ndarray) -> None:
    a, b = ranks.pair(quorum=quorum, late=late, sync_period=1)
    request = a.iallreduce(x, 0)
    b.allreduce(x.copy(), 0)
    outcome = request.wait()
    assert not outcome.merged
    assert outcome.results == (None,)
    a.close()
    b.close()


def test_stale_handles_have_no_results(x: np.ndarray) -> None:
    for quorum in (0, 1):
        a, b = ranks.pair(quorum=quorum, sync_period=1)
        outcomes: list[Any] = [a.iallreduce(x)]
        outcomes.append(b.allreduce(np.ones(3, np.float32)))
        outcomes[0] = outcomes[0].wait()
        for outcome in outcomes:
            assert outcome.results == ()
            assert outcome.result is None
        a.close()
        b.close()
