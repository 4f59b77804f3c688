"""Gradients that overflow on some of the ranks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI
from tiny import ALGORITHMS, COMM, ON_TIME, RANK, SIZE, on_all_ranks

import wagma
from wagma.algorithms import Algorithm

pytestmark = pytest.mark.mpi

RATE = 0.25
EVERY_STEP = partial(wagma.LocalSGD, sync_period=1)
SCALE = 192.0
# At each step the ranks whose gradients overflow.
OVERFLOWS = [[], [0], [1 % SIZE, SIZE - 1], list(range(SIZE)), []]


def gradient(rank: int, step: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng((rank, step)).normal(size=(4, 3))


def clipped(value: np.ndarray[Any, Any], clip: bool) -> np.ndarray[Any, Any]:
    norm = float(np.linalg.norm(value))
    return value * min(1.0, 0.5 / (norm + 1e-6)) if clip else value


def backward(parameter: torch.Tensor, scaler: torch.amp.GradScaler, step: int) -> None:
    """A backward pass whose unscaled gradient is `gradient`, or infinite."""
    weights = torch.from_numpy(gradient(RANK, step))
    loss = (parameter * weights).sum()
    if RANK in OVERFLOWS[step]:
        loss = loss * torch.inf
    scaled: Any = scaler.scale(loss)
    scaled.backward()


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("make", [wagma.AllreduceSGD, ON_TIME["WAGMA-all"], EVERY_STEP])
def test_ranks_stay_together(make: Callable[..., Algorithm], clip: bool) -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=torch.float64))
    inner = torch.optim.SGD([parameter], lr=RATE, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    with wagma.DistributedOptimizer(inner, make(COMM)) as optimizer:
        for step in range(len(OVERFLOWS)):
            optimizer.zero_grad()
            backward(parameter, scaler, step)
            if clip:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_([parameter], 0.5)
            scaler.step(optimizer)
            scaler.update()
            assert optimizer.version == step + 1, "every rank makes every version"
        assert len(set(on_all_ranks(parameter))) == 1
        assert bool(parameter.isfinite().all())
        lowered = sum(RANK in ranks for ranks in OVERFLOWS)
        assert optimizer.stats()["passive_steps"] == lowered
        assert scaler.get_scale() == SCALE / 2**lowered, "each rank's scale is its own"

    models = np.ones((SIZE, 4, 3))
    momenta = np.zeros((SIZE, 4, 3))
    for step, overflowed in enumerate(OVERFLOWS):
        active = [rank for rank in range(SIZE) if rank not in overflowed]
        gradients = {rank: clipped(gradient(rank, step), clip) for rank in active}
        if make is wagma.AllreduceSGD:
            if active:
                momenta = 0.5 * momenta + np.mean(list(gradients.values()), axis=0)
                models = models - RATE * momenta
        else:
            for rank in active:
                momenta[rank] = 0.5 * momenta[rank] + gradients[rank]
                models[rank] -= RATE * momenta[rank]
            models[:] = models.mean(axis=0)
    np.testing.assert_allclose(parameter.detach(), models[RANK], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_infinity_reaches_any_rank(name: str) -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=torch.float64))
    inner = torch.optim.SGD([parameter], lr=RATE, momentum=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    overflowed = 0
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        while optimizer.version < 2 * len(OVERFLOWS):
            step = optimizer.version % len(OVERFLOWS)  # some are left out by a rank that is late
            overflowed += RANK in OVERFLOWS[step]
            optimizer.zero_grad()
            backward(parameter, scaler, step)
            scaler.step(optimizer)
            scaler.update()
            assert bool(parameter.isfinite().all())
        optimizer.synchronize()
        assert optimizer.stats()["passive_steps"] == overflowed
        assert bool(parameter.isfinite().all())
        assert len(set(on_all_ranks(parameter))) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_one_rank_equals_the_bare_optimizer(dtype: torch.dtype) -> None:
    """To the bit, with a scale whose reciprocal is rounded."""
    results = []
    for distributed in (False, True):
        parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=dtype))
        optimizer: torch.optim.Optimizer = torch.optim.SGD([parameter], lr=RATE)
        if distributed:
            optimizer = wagma.DistributedOptimizer(optimizer, wagma.AllreduceSGD(MPI.COMM_SELF))
        scaler = torch.amp.GradScaler("cpu", init_scale=3.7)
        for step in range(len(OVERFLOWS)):
            optimizer.zero_grad()
            backward(parameter, scaler, step)
            scaler.step(optimizer)
            scaler.update()
        results.append(parameter.detach().clone())
    assert torch.equal(*results)


def test_a_scaler_that_is_off_changes_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    inner = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        scaler.scale(parameter.sum() * RANK).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == pytest.approx([1 - (SIZE - 1) / 2] * 2)


def test_a_step_that_raised_leaves_no_scale_behind() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    inner = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        with optimizer.no_sync():
            scaler.scale(parameter.sum()).backward()
            with pytest.raises(RuntimeError, match="no_sync"):
                scaler.step(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == [0.0, 0.0]
