"""Fastest-k SGD on real ranks: k is that of Algorithm 1, or of a schedule."""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from recorded import Recorded

import wagma
from wagma.theory.fastest_k import AdaptiveK
from wagma.training.strategies.fastest_k import Progress

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
TRANSPORTS = ["shm", "mpi"]
several = pytest.mark.skipif(SIZE == 1, reason="nobody is late alone")


@pytest.mark.parametrize("schedule", [pytest.param("additive", marks=pytest.mark.long), "double"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_k_grows_as_algorithm_1_says(schedule: Any, transport: Any) -> None:
    """Gradients that change their sign with every version, on any rank and however many."""
    algorithm = wagma.FastestK(
        COMM, 1, step=1, thresh=1, burnin=4, schedule=schedule, transport=transport
    )
    run = Recorded(algorithm)
    ks: dict[int, int] = {}
    with run.opt as opt:
        while (version := opt.version) < 40:
            time.sleep(0.001 * ((version + RANK) % 3))
            ks[version] = algorithm.k
            assert opt.stats()["k"] == algorithm.k
            opt.zero_grad()
            (run.weights.sum() * (-1) ** (version // (1 + version // 20))).backward()
            opt.step()
            assert opt.outcome is not None
            assert len(opt.outcome.contributors) >= (0 if opt.outcome.late else ks[version])
    policy, before = AdaptiveK(1, SIZE, 1, 1, 4, schedule=schedule), None
    for version, update in enumerate(np.array(run.updates)):
        assert ks.get(version, policy.k) == policy.k
        policy.update(None if before is None else float(np.dot(before, update)))
        before = update
    assert (
        algorithm.k
        == policy.k
        == (SIZE if schedule == "additive" else 2 ** (SIZE.bit_length() - 1))
    )
    assert len(set(map(str, COMM.allgather(run.updates)))) == 1


@pytest.mark.parametrize("first", [1, SIZE])
def test_a_schedule_of_ones_own_sees_what_all_ranks_know(first: int) -> None:
    seen: list[Progress] = []

    def schedule(progress: Progress) -> int:
        seen.append(progress)
        return 1 + progress.version % SIZE

    began = time.monotonic()
    algorithm = wagma.FastestK(COMM, first, schedule=schedule)
    run = Recorded(algorithm)
    with run.opt as opt:
        while opt.version < 12:
            time.sleep(0.001 * ((opt.version + RANK) % 3))
            run.backward()
            opt.step()
    assert [one.version for one in seen] == list(range(12))
    assert [one.k for one in seen[1:]] == [1 + version % SIZE for version in range(11)]
    assert seen[0].inner_product is None
    for (before, after), one in zip(pairwise(run.updates), seen[1:], strict=True):
        assert one.inner_product == pytest.approx(np.dot(before, after))
    passed = COMM.allreduce(time.monotonic() - began, MPI.MAX)
    assert all(0 < one.seconds < passed for one in seen)
    assert len(set(map(str, COMM.allgather(seen)))) == 1


def test_k_follows_the_switch_times() -> None:
    times = [0.1 * k for k in range(1, SIZE)]
    begin = time.monotonic()
    COMM.Barrier()  # no rank begins earlier
    algorithm = wagma.FastestK(COMM, 1, schedule="bound-optimal", switch_times=times)
    run = Recorded(algorithm)
    ks = [1]
    with run.opt as opt:
        while algorithm.k < SIZE:
            time.sleep(0.02)
            run.backward()
            opt.step()
            ks.append(algorithm.k)
            assert algorithm.k <= 1 + (time.monotonic() - begin) / 0.1
    assert ks == sorted(ks)


def test_a_checkpoint_has_k_and_its_counts() -> None:
    def make() -> Recorded:
        return Recorded(wagma.FastestK(COMM, 1, thresh=0, burnin=2))

    def go_on(run: Recorded, last: int) -> None:
        while (version := run.opt.version) < last:
            run.opt.zero_grad()
            (run.weights.sum() * (-1) ** version).backward()
            run.opt.step()

    first, second = make(), make()
    with first.opt:
        go_on(first, 5)
        first.opt.synchronize()
        state = first.opt.state_dict()
        saved = state["wagma"]["state"]
    assert saved["policy"]["count_iter"] != 1 or saved["k"] > 1
    if RANK == SIZE - 1 > 0:  # it has saved at another version: all continue with rank 0's
        state["wagma"]["state"] = {**saved, "k": 1}
    with second.opt:
        second.opt.load_state_dict(state)
        go_on(second, 7)
        found = second.opt.state_dict()["wagma"]["state"]
        go_on(second, 30)
        assert second.opt.stats()["k"] == SIZE
    assert saved["k"] <= found["k"] <= SIZE
    assert len(set(map(str, COMM.allgather(second.updates)))) == 1


def test_k_of_a_schedule_is_not_set_by_hand() -> None:
    with pytest.raises(AttributeError, match="schedule"):
        wagma.FastestK(COMM, 1).k = 2
