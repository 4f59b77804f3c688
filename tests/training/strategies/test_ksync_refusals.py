"""Check what K-sync, K-async and fastest-k SGD refuse, and what they say."""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI
from recorded import Recorded

import wagma
from wagma.collectives import MismatchError, PeerError, QuorumMismatchError

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
TRANSPORTS = ["shm", "mpi"]
several = pytest.mark.skipif(SIZE == 1, reason="nobody is late alone")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: wagma.KSync(COMM, 0), "k is 0: at least 1"),
        (lambda: wagma.KAsync(COMM, SIZE + 1), rf"k is {SIZE + 1}: at most {SIZE}"),
        (lambda: wagma.KSync(COMM, 1.5), "k is 1.5: an integer"),  # type: ignore[arg-type]
        (lambda: wagma.FastestK(COMM, SIZE, k_max=SIZE - 1), "k_max is"),
        (lambda: wagma.FastestK(COMM, 1, thresh=-1), "thresh"),
        (lambda: wagma.KSync(COMM, 1, on_nonfinite="drop"), "on_nonfinite='drop'"),  # type: ignore[arg-type]
        (lambda: wagma.FastestK(COMM, 1, schedule="triple"), "schedule='triple'"),  # type: ignore[arg-type]
        (lambda: wagma.FastestK(COMM, 1, schedule="bound-optimal"), "switch_times=None"),
        (
            lambda: wagma.FastestK(COMM, 1, schedule="bound-optimal", switch_times=[2, 1]),
            "ascending",
        ),
    ],
)
def test_wrong_arguments_are_refused_on_every_rank(
    make: Callable[[], wagma.Algorithm], words: str
) -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    with pytest.raises((ValueError, TypeError), match=words):
        wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), make())


@several
def test_other_arguments_on_another_rank_are_refused() -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    for made in (wagma.KSync(COMM, 1 + (RANK == 0)), wagma.FastestK(COMM, 1, burnin=RANK)):
        with pytest.raises(MismatchError):
            wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), made)


@several
def test_k_of_all_ranks_stays() -> None:
    algorithm = wagma.KSync(COMM, SIZE)
    run = Recorded(algorithm)
    with run.opt as opt:
        algorithm.k = SIZE
        with pytest.raises(ValueError, match=rf"made with k = all {SIZE} ranks"):
            algorithm.k = SIZE - 1
        run.backward()
        opt.step()
        assert algorithm.k == SIZE
    with pytest.raises(AttributeError, match="FastestK"):
        wagma.FastestK(COMM, SIZE).k = 1


@several
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_k_can_be_lowered_from_all_ranks(early: bool, transport: Any) -> None:
    """Set before the optimizer is made, or after; also when the collective is made again."""
    algorithm = wagma.KSync(COMM, SIZE - 1, transport=transport)
    if early:
        algorithm.k = SIZE
    run = Recorded(algorithm)
    with run.opt as opt:
        algorithm.k = SIZE
        for _ in range(3):
            run.backward()
            opt.step()
            assert opt.outcome is not None
            assert len(opt.outcome.contributors) == SIZE
        more = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        opt.add_param_group({"params": [more]})
        assert algorithm.k == SIZE
        algorithm.k = 1
        if RANK == 0:
            run.wait_until_started()
        run.backward()
        opt.step()
        assert opt.outcome is not None
        assert opt.outcome.late or RANK != 0
        opt.synchronize()


@several
def test_ranks_that_set_another_k_are_told() -> None:
    algorithm = wagma.KSync(COMM, 1)
    run = Recorded(algorithm)
    with pytest.raises(QuorumMismatchError, match=r"opt\.algorithm\.k") as caught, run.opt as opt:
        run.backward()
        opt.step()
        opt.synchronize()
        algorithm.k = 2 if RANK == 0 else 1
        for _ in range(50):
            run.backward()
            opt.step()
    assert "opt.join" not in str(caught.value)


KSYNC = (wagma.KSync, "all ranks have to set it for the same version")
FASTEST = (
    wagma.FastestK,
    "the schedule sets it, and has to be one function of its Progress alone on all ranks",
)


@pytest.mark.skipif(SIZE < 3, reason="two ranks disagree, and a third is told")
@pytest.mark.parametrize(
    ("made", "transport", "call"),
    [
        (KSYNC, "shm", "step"),
        (KSYNC, "shm", "synchronize"),
        (KSYNC, "mpi", "step"),
        (KSYNC, "mpi", "synchronize"),
        (KSYNC, "mpi", "close"),
        (FASTEST, "shm", "step"),
    ],
)
def test_the_remedy_is_k_whatever_a_rank_calls(made: Any, transport: Any, call: str) -> None:
    """The last rank makes its call after the others have failed, and has not called with them."""
    kind, remedy = made
    algorithm = kind(COMM, 1, transport=transport)
    run = Recorded(algorithm)
    algorithm._change_k(SIZE - 1 - (RANK == 0))
    last = RANK == SIZE - 1
    if last:
        COMM.Barrier()
    else:
        call = "step"
    if call == "step":
        run.backward()
    try:
        with pytest.raises(QuorumMismatchError) as caught, run.opt as opt:
            getattr(opt, call)()
            opt.synchronize()
    finally:
        if not last:
            COMM.Barrier()
    assert f"opt.algorithm.k: {remedy}" in str(caught.value)
    assert "opt.join" not in str(caught.value)


@pytest.mark.parametrize("kind", [wagma.KSync, wagma.KAsync, wagma.FastestK])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_is_no_part_of_an_update(kind: Any, value: float) -> None:
    run = Recorded(kind(COMM, SIZE, on_nonfinite="skip"))
    with run.opt as opt:
        for step in range(4):
            run.backward()
            if RANK == 0 and step == 1:
                assert run.weights.grad is not None
                run.weights.grad[0] = value
            opt.step()
        assert opt.stats()["nonfinite"] == (RANK == 0)
    means = [[1 / SIZE] * SIZE] * 4
    means[1] = [0.0] + [1 / (SIZE - 1)] * (SIZE - 1) if SIZE > 1 else []
    assert run.updates == pytest.approx(np.array([mean for mean in means if mean]))


@pytest.mark.parametrize("kind", [wagma.KSync, wagma.KAsync, wagma.FastestK])
def test_it_is_an_error_by_default(kind: Any) -> None:
    run = Recorded(kind(COMM, SIZE))
    error = FloatingPointError if RANK == 0 else PeerError
    with pytest.raises(error, match="parameter 0" if RANK == 0 else "rank 0"), run.opt as opt:
        run.backward()
        opt.step()
        run.backward()
        if RANK == 0:
            assert run.weights.grad is not None
            run.weights.grad[0] = torch.nan
        opt.step()
    assert len(run.updates) == 1


@several
def test_a_scaler_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    run = Recorded(wagma.KAsync(COMM, 1))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with run.opt as opt, caplog.at_level(logging.WARNING):
        while opt.version < 12:
            time.sleep(0.01 * (RANK == 0))
            if opt.pending:
                with pytest.raises(RuntimeError, match=r"opt\.step\(\) then"):
                    scaler.step(opt)
                opt.step()
                continue
            opt.zero_grad()
            scaler.scale(run.weights[RANK]).backward()
            scaler.step(opt)
            scaler.update()
        opt.synchronize()
    assert not [one for one in caplog.records if "opt.pending" in one.getMessage()]
    assert np.array(run.updates).sum(1) == pytest.approx(1.0)


def test_the_drawing_of_micro_batches_is_refused_around_k_async() -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError, match="KAsync"):
        wagma.DistributedOptimizer(
            torch.optim.SGD([weights], lr=0.1), wagma.DropCompute(wagma.KAsync(COMM, 1), 4)
        )
