"""Agree on a stop at no cost while no rank asks: no call of a collective, and no wait.

Where a rank may always be late, or no average is over all: one number every so many versions.
"""

from functools import partial
from typing import Any

import pytest
from ending import CASES, SHORT, backward, new_optimizer
from tiny import COMM, RANK, SIZE, mostly_long

import wagma

pytestmark = pytest.mark.mpi

STEPS = 12
MADE = {name: case.make(COMM) for name, case in CASES.items()}
POSTED = [name for name, made in MADE.items() if not made.carries_stops]
LATE = [name for name, made in MADE.items() if made.may_be_late]


def calls(name: str, *, watches: bool) -> list[int]:
    """Return the versions that each collective has made in some steps."""
    with new_optimizer(CASES[name].make(COMM)) as opt:
        if watches:
            opt.watch_stops()
        while opt.version < STEPS:
            if not opt.pending:
                backward(opt)
            opt.step()
        return [one.version for one in opt.algorithm._collectives]


@pytest.mark.parametrize(
    "name", mostly_long([name for name in CASES if name not in POSTED + LATE], SHORT)
)
def test_what_is_averaged_anyway_carries_it(name: str) -> None:
    with_it, without = calls(name, watches=True), calls(name, watches=False)
    assert len(with_it) == len(without)
    assert with_it == without


@pytest.mark.parametrize("name", mostly_long(LATE, SHORT))
def test_beside_what_goes_on_without_a_rank_one_number_is_posted(name: str) -> None:
    with_it, without = calls(name, watches=True), calls(name, watches=False)
    assert len(with_it) == len(without) + 1
    with new_optimizer(CASES[name].make(COMM)) as opt:
        assert with_it[-1] == 1 + STEPS // opt.algorithm.stop_period()


@pytest.mark.parametrize("name", mostly_long(POSTED, SHORT))
def test_others_post_one_number_per_period(name: str) -> None:
    with_it, without = calls(name, watches=True), calls(name, watches=False)
    case = CASES[name]
    assert case.stops_at is not None
    every = case.stops_at(0) // 2
    assert with_it[:-1] == without
    assert with_it[-1] == 1 + STEPS // every


@pytest.mark.shm("over messages a rank is stopped earlier by the window")
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    "start", [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 6))]
)
@pytest.mark.parametrize("make", [wagma.ADPSGD, partial(wagma.WAGMA, sync_period=None)])
def test_nobody_waits_for_a_rank_within_the_window(start: int, make: Any) -> None:
    """The others go as far as their collective lets them, while a rank computes."""
    window = 4
    with new_optimizer(make(COMM, window=window)) as opt:
        opt.watch_stops()
        for _ in range(start):
            backward(opt)
            opt.step()
        opt.synchronize()
        if RANK == 0:
            for rank in range(1, SIZE):
                COMM.recv(source=rank)  # it computes until the others are as far ahead as they may
        for step in range(2 * window):
            backward(opt)
            opt.step()
            if RANK > 0 and step == window - 1:
                COMM.send(None, 0)
        opt.synchronize()
