"""Check what the benchmark fills arrays with, and which wrong results it notices."""

import itertools

import numpy as np
import pytest

from wagma.benchmarks.checking import Checked, Contributed, merge
from wagma.benchmarks.contributions import BLOCK, ROW, Contributions
from wagma.benchmarks.samples import Checks
from wagma.collectives.arrays import DTYPES

COUNTS = (0, 1, 3, ROW, 3 * ROW + 1, BLOCK * ROW + 5)
FLOATS = ("float32", "float64", "float16", "bfloat16")


def total(contributions: Contributions, datatype: str, holds: list[tuple[int, int]], count: int):
    """The sum as an engine makes it: one addition after the other, each of them rounded."""
    sums = np.zeros(count, np.float32 if datatype == "bfloat16" else contributions.storage)
    for rank, version in holds:
        x = np.empty(count, contributions.storage)
        contributions.write(x, rank, version)
        if datatype != "bfloat16":
            sums = sums + x
            continue
        sums = sums + (x.astype(np.uint32) << 16).view(np.float32)
        assert not np.any(sums.view(np.uint32) & 0xFFFF), "the sum is not exact"
    if datatype == "bfloat16":
        return (sums.view(np.uint32) >> 16).astype(np.uint16)
    return sums


@pytest.mark.parametrize("datatype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
def test_sums_are_exact_in_any_order(datatype: str, count: int) -> None:
    holds = [(rank, 7 * rank) for rank in range(8)]
    contributions = Contributions(count, datatype, len(holds))
    for order in (holds, holds[::-1]):
        assert contributions.wrong(total(contributions, datatype, order, count), holds) == 0


@pytest.mark.parametrize("datatype", DTYPES)
def test_a_sum_of_others_is_noticed(datatype: str) -> None:
    """A version or a rank that is not the right one, one too few, one twice: nearly everywhere."""
    count = 1000
    holds = [(rank, 5) for rank in range(4)]
    contributions = Contributions(count, datatype, 9)
    x = total(contributions, datatype, holds, count)
    others = [
        [(0, 4), *holds[1:]],
        [(4, 5), *holds[1:]],
        holds[1:],
        [*holds, holds[0]],
        [(0, 5), (0, 5), *holds[2:]],
    ]
    for other in others:
        assert contributions.wrong(x, other) > 0.9 * count


def test_ranks_and_versions_are_told_apart() -> None:
    contributions = Contributions(5, "float32", 65)
    seen = set()
    for rank, version in itertools.product(range(64), range(-1, 1000, 7)):
        x = np.empty(5, np.float32)
        contributions.write(x, rank, version)
        seen.add(x.tobytes())
    assert len(seen) == 64 * len(range(-1, 1000, 7))


@pytest.mark.parametrize("shift", [1, 2, 16, 1 << 12, 1 << 16])
def test_parts_in_the_wrong_place_are_noticed(shift: int) -> None:
    count = 1 << 18
    contributions = Contributions(count, "bfloat16", 3)
    x = np.empty(count, np.uint16)
    contributions.write(x, 0, 0)
    assert contributions.wrong(np.roll(x, shift), [(0, 0)]) > count // 2


@pytest.mark.parametrize("place", [0, 1, ROW, BLOCK * ROW - 1, BLOCK * ROW + 3])
def test_one_wrong_element_is_found_wherever_it_is(place: int) -> None:
    count = BLOCK * ROW + 5
    contributions = Contributions(count)
    x = np.empty(count, np.float32)
    contributions.write(x, 1, 2)
    x[place] += 1
    assert contributions.wrong(x, [(1, 2)]) == 1
    x[place] = np.nan
    assert contributions.wrong(x, [(1, 2)]) == 1


@pytest.mark.parametrize(("datatype", "most"), [("float16", 2048), ("bfloat16", 256)])
def test_sums_that_would_be_rounded_are_refused(datatype: str, most: int) -> None:
    holds = [(rank, 0) for rank in range(most)]
    contributions = Contributions(10, datatype, most)
    assert contributions.wrong(total(contributions, datatype, holds, 10), holds) == 0
    with pytest.raises(
        ValueError, match=f"{datatype} holds sums of {most + 1} arrays only rounded"
    ):
        Contributions(10, datatype, most + 1)


def test_integers_wrap() -> None:
    contributions = Contributions(100, "int32", 9)
    holds = [(rank, 0) for rank in range(9)]
    x = total(contributions, "int32", holds, 100)
    assert (x < 0).any()
    assert contributions.wrong(x, holds) == 0


def test_what_is_carried_is_added_once() -> None:
    contributed = Contributed(2)
    assert contributed.expand([(0, 0), (1, 0)], 0) == [(0, 0), (1, 0)]
    contributed.note(0, [False, True])
    contributed.note(1, [False, True])
    assert contributed.expand([(0, 2), (1, 2)], 2) == [(0, 2), (1, 2), (1, 0), (1, 1)]
    contributed.note(2, [False, False])
    assert contributed.expand([(0, 3), (1, 3)], 3) == [(0, 3), (1, 3)]


@pytest.mark.parametrize("datatype", DTYPES)
def test_a_falsified_result_is_counted(datatype: str) -> None:
    contributions = Contributions(9, datatype, 3)
    checked = Checked(3, contributions, spoil=1)
    holds = [(0, 0), (1, 0)]
    x = total(contributions, datatype, holds, 9)
    for _ in range(3):
        checked.compare("sums", x, holds, False, None)
    checked.compare("sums", None, holds, True, None)  # every call has a result
    checked.compare("sums", x, holds, False, "it came by post")
    assert checked.checks() == Checks(
        5, 3, "sums, rank 3, result 1: 1 of 9 elements are not the sum of (rank, version) "
        "[(0, 0), (1, 0)]"
    )  # fmt: skip
    assert checked.late == 1
    other = Checks(7, 1, "another")
    assert merge([Checks(2), other, checked.checks()]) == Checks(14, 4, "another")
