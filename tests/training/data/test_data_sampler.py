"""Batches of uneven sizes: every sample once, whatever the shares, changes and resumptions."""

import doctest
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wagma.data.uneven
from wagma.data import UnevenBatchSampler

quick = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
Shares = list[int]


def shares(ranks: int | None = None) -> st.SearchStrategy[Shares]:
    """Batches of some ranks, 0 among them, at least one in all."""
    size = {"min_size": ranks or 1, "max_size": ranks or 6}
    return st.lists(st.integers(0, 7), **size).filter(any)


def team(size: int, batches: Sequence[int], **options: Any) -> list[UnevenBatchSampler]:
    """The samplers of all ranks."""
    options = {"seed": 3} | options
    return [UnevenBatchSampler(size, batches, rank, **options) for rank in range(len(batches))]


def steps_of(samplers: list[UnevenBatchSampler]) -> list[list[list[int]]]:
    """What all ranks take at each step; as many steps on each."""
    return [list(step) for step in zip(*samplers, strict=True)]


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [sample for step in steps for batch in step for sample in batch]


def sizes(step: list[list[int]]) -> Shares:
    return [len(batch) for batch in step]


# ---- exact covers --------------------------------------------------------------------------------


@quick
@given(shares(), st.integers(0, 60), st.integers(0, 9), st.booleans())
def test_every_sample_once(batches: Shares, more: int, epoch: int, shuffle: bool) -> None:
    total = sum(batches)
    size = total + more
    samplers = team(size, batches, epoch=epoch, shuffle=shuffle)
    assert {len(sampler) for sampler in samplers} == {-(-size // total)}
    steps = steps_of(samplers)
    assert len(steps) == len(samplers[0])
    assert sorted(flat(steps)) == list(range(size))
    assert all(sizes(step) == batches for step in steps[: size // total])
    if rest := size % total:
        last = sizes(steps[-1])
        assert sum(last) == rest
        quotas = [rest * batch / total for batch in batches]
        assert all(math.floor(q) <= n <= math.ceil(q) for q, n in zip(quotas, last, strict=True))
        up = [q % 1 for q, n in zip(quotas, last, strict=True) if n > q]
        down = [q % 1 for q, n in zip(quotas, last, strict=True) if n < q]
        assert min(up, default=1) >= max(down, default=0) - 1e-9, "the largest remainders"


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[Shares, list[tuple[int, int, Shares]]]]]:
    """A dataset's size, and teams one after the other, each with changes: drawn, ahead, batches."""
    teams = []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(shares())
        change = st.tuples(st.integers(0, 3), st.integers(0, 2), shares(len(first)))
        teams.append((first, draw(st.lists(change, max_size=3))))
    largest = max(sum(b) for first, changes in teams for b in (first, *(c[2] for c in changes)))
    return draw(st.integers(largest, 120)), teams


@quick
@given(histories())
def test_every_sample_once_with_changes_and_other_ranks(history: Any) -> None:
    """Teams of other sizes go on from each other's state; each changes its batches on its way."""
    size, teams = history
    taken: list[int] = []
    state: Any = None
    for number, (first, changes) in enumerate(teams):
        samplers = team(size, first, seed=number)
        if state is not None:
            for sampler in samplers:
                sampler.load_state_dict(state)
        left = len(samplers[0])
        iterators = [iter(sampler) for sampler in samplers]
        drawn: list[list[list[int]]] = []
        for steps, ahead, batches in changes:
            for _ in range(steps):
                drawn += [step] if any(step := [next(it, []) for it in iterators]) else []
            for sampler in samplers:
                sampler.set_batches(batches, sampler.next_step + ahead)
        if not changes:
            drawn += [[next(it, []) for it in iterators] for _ in range(min(2, left))]
        if number + 1 == len(teams):
            drawn += [list(step) for step in zip(*iterators, strict=True)]
            assert all(map(any, drawn)), "no step is empty on all ranks"
        taken += flat(drawn)
        states = [sampler.state_dict() for sampler in samplers]
        assert all(found == states[0] for found in states)
        assert states[0]["samples"] == len(taken)
        state = json.loads(json.dumps(states[0]))
    assert sorted(taken) == list(range(size))


def test_batches_change_at_the_step() -> None:
    samplers = team(40, [4, 4])
    iterators = [iter(sampler) for sampler in samplers]
    drawn = [[next(iterator) for iterator in iterators] for _ in range(2)]
    for sampler in samplers:
        sampler.set_batches([1, 1], 3)
        sampler.set_batches([7, 0], 4)
        sampler.set_batches([2, 6], 3)  # instead of both
        assert (len(sampler), sampler.batches, sampler.next_step) == (5, (2, 6), 2)
        sampler.set_batches([3, 5], 6)  # this epoch ends before
        assert (len(sampler), sampler.batches) == (5, (3, 5))
    drawn += [list(step) for step in zip(*iterators, strict=True)]
    assert [sizes(step) for step in drawn] == [[4, 4]] * 3 + [[2, 6]] * 2
    # The next epoch has the newest ones.
    for sampler in samplers:
        sampler.set_epoch(1)
    assert [sizes(step) for step in steps_of(samplers)] == [[3, 5]] * 5


def test_steps_that_were_drawn_do_not_change() -> None:
    sampler = UnevenBatchSampler(40, [4, 4], 0, seed=3)
    iterator = iter(sampler)
    drawn = [next(iterator) for _ in range(3)]
    with pytest.raises(
        ValueError, match=r"from_step is 2: step 2 of epoch 0 was drawn already.* 3,"
    ):
        sampler.set_batches([1, 1], 2)
    assert sampler.batches == (4, 4)
    sampler.set_batches([1, 1], 3)
    assert [len(batch) for batch in [*drawn, *iterator]] == [4] * 3 + [1] * 8


# ---- orders --------------------------------------------------------------------------------------


def order(**options: Any) -> list[int]:
    return flat(steps_of(team(30, [3, 2], **options)))


def test_the_order_is_that_of_seed_and_epoch() -> None:
    assert order() == order()
    assert order() == flat(steps_of(team(30, [1, 0, 4, 6]))), "shares only cut it"
    assert len({tuple(order(seed=seed, epoch=epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert order(shuffle=False) == list(range(30))
    # The bits of Philox: every version of numpy gives them, and so every rank has them.
    (sampler,) = team(8, [8], seed=1, epoch=2)
    assert list(sampler) == [[7, 1, 3, 0, 4, 2, 6, 5]]


def test_iterating_again() -> None:
    (sampler,) = team(10, [3])
    first = list(sampler)
    assert list(sampler) == first
    iterator = iter(sampler)
    next(iterator)
    iter(sampler)
    assert sampler.next_step == 0
    assert list(sampler) == first, "an iterator that was left does not matter"
    sampler.set_epoch(0)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    iterator = iter(sampler)
    second = [next(iterator)]
    sampler.set_epoch(2)
    assert sampler.next_step == 0
    second += list(iterator)
    assert sampler.next_step == 0, "an old iterator does not draw from the new epoch"
    sampler.set_epoch(1)
    assert list(sampler) == second


# ---- states --------------------------------------------------------------------------------------


def test_a_state_counts_the_steps_that_were_trained() -> None:
    (sampler,) = team(10, [3])
    batches = []
    iterator = iter(sampler)
    batches = [next(iterator) for _ in range(3)]  # two of these by workers ahead
    state = sampler.state_dict(steps=1)
    assert (state["steps"], state["samples"]) == (1, 3)
    assert sampler.state_dict() == sampler.state_dict(steps=3)
    (resumed,) = team(10, [5], seed=99, shuffle=False)
    resumed.load_state_dict(state)
    assert (resumed.first_step, resumed.next_step, len(resumed)) == (1, 1, 2)
    resumed.set_epoch(0)
    rest = [sample for batch in resumed for sample in batch]
    assert sorted([*batches[0], *rest]) == list(range(10))
    assert rest[:3] == batches[1], "it goes on in the order of the saved seed"
    with pytest.raises(ValueError, match="steps is 0: at least 1"):
        resumed.state_dict(steps=0)
    with pytest.raises(ValueError, match="steps is 4: at most 3"):
        resumed.state_dict(steps=4)
    # Iterating again is the whole epoch.
    assert (resumed.first_step, len(resumed)) == (0, 2)
    assert sorted(sample for batch in resumed for sample in batch) == list(range(10))


def test_the_state_of_a_finished_epoch() -> None:
    (sampler,) = team(10, [3])
    assert len(list(sampler)) == 4
    state = sampler.state_dict()
    assert state == sampler.state_dict(steps=4)
    (resumed,) = team(10, [3])
    resumed.load_state_dict(state)
    assert (len(resumed), list(resumed)) == (0, [])
    resumed.set_epoch(1)
    (later,) = team(10, [3], epoch=1)
    assert list(resumed) == list(later)
    later.load_state_dict(state)
    assert (later.epoch, len(later)) == (1, 4), "it is in the next epoch already"
    with pytest.raises(ValueError, match="dataset of 10 samples, and this one has 11"):
        team(11, [3])[0].load_state_dict(state)
    with pytest.raises(ValueError, match="state has no samples"):
        later.load_state_dict({name: state[name] for name in state if name != "samples"})
    with pytest.raises(TypeError, match="epoch is None"):
        later.load_state_dict(state | {"epoch": None})
    assert (later.epoch, len(later)) == (1, 4)


# ---- bad input -----------------------------------------------------------------------------------


class Endless:
    """An iterable dataset."""

    def __iter__(self) -> Any: ...


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dataset_size": 0}, "dataset_size is 0: at least 1"),
        ({"dataset_size": []}, "the length of the dataset is 0"),
        ({"dataset_size": 6}, "batches add up to 7, and dataset_size is 6"),
        ({"batches": [3, -1]}, r"batches\[1\] is -1"),
        ({"batches": [0, 0]}, "batches are all 0"),
        ({"batches": []}, "batches are all 0"),
        ({"rank": 2}, "rank is 2: the 2 ranks are 0 to 1"),
        ({"seed": -1}, "seed is -1"),
        ({"epoch": -1}, "epoch is -1"),
        ({"limits": [3, 3]}, r"batches\[1\] is 4: rank 1 has memory for 3 samples"),
        ({"limits": [3]}, "limits has 1 numbers"),
    ],
)
def test_bad_values(arguments: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        UnevenBatchSampler(
            **{"dataset_size": 20, "batches": [3, 4], "rank": 0, "seed": 1} | arguments
        )


def test_bad_types() -> None:
    with pytest.raises(TypeError, match=r"which has no length: the number of samples is needed"):
        UnevenBatchSampler(Endless(), [3], 0, seed=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"batches\[0\] is 1\.5: an integer"):
        UnevenBatchSampler(20, [1.5], 0, seed=1)  # type: ignore[list-item]
    assert len(UnevenBatchSampler(["a"] * 20, [3], 0, seed=1)) == 7


def test_bad_changes_change_nothing() -> None:
    (sampler,) = team(20, [5], limits=[6])
    for batches, says in (([7], "rank 0 has memory for 6"), ([5, 5], "batches has 2 numbers")):
        with pytest.raises(ValueError, match=says):
            sampler.set_batches(batches, 2)
    assert (sampler.batches, len(list(sampler))) == ((5,), 4)


def test_the_example_runs() -> None:
    found = doctest.testmod(wagma.data.uneven)
    assert (found.failed, found.attempted > 0) == (0, True)


@pytest.mark.long
def test_no_torch_and_no_mpi_at_import() -> None:
    script = (
        "import sys, wagma\n"
        "list(wagma.data.UnevenBatchSampler(9, [2, 1], 0, seed=1))\n"
        "assert not {'torch', 'mpi4py'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
