"""Gradients of several backward passes make one step."""

from collections.abc import Callable

import pytest
import torch
from tiny import (
    COMM,
    ON_TIME,
    ON_TIME_EACH_KIND,
    OPTIMIZERS,
    RANK,
    SIZE,
    batch,
    build_model,
    loss_of,
    mostly_long,
    on_time,
    values,
)

import wagma
from wagma.algorithms import Algorithm

pytestmark = pytest.mark.mpi

PARTS = 4


@pytest.fixture(params=mostly_long(ON_TIME, ON_TIME_EACH_KIND))
def make(request: pytest.FixtureRequest) -> Callable[..., Algorithm]:
    return ON_TIME[request.param]


def accumulated(make: Callable[..., Algorithm], parts: int) -> torch.Tensor:
    """The model after six steps, each of `parts` backward passes."""

    def play(meet: Callable[[], None]) -> tuple[wagma.DistributedOptimizer, torch.Tensor]:
        model = build_model()
        inner = OPTIMIZERS["SGD"](model.parameters())
        with wagma.DistributedOptimizer(inner, make(COMM)) as optimizer:
            for step in range(6):
                version = optimizer.version
                optimizer.zero_grad()
                pieces = batch(step, RANK).chunk(parts)
                with optimizer.no_sync():
                    for piece in pieces[:-1]:
                        (loss_of(model, piece) / parts).backward()
                (loss_of(model, pieces[-1]) / parts).backward()
                assert optimizer.version == version, "only a step is a version"
                meet()
                optimizer.step()
        return optimizer, values(model)

    return on_time(play)


def test_micro_batches_are_one_batch(make: Callable[..., Algorithm]) -> None:
    small, whole = accumulated(make, PARTS), accumulated(make, 1)
    torch.testing.assert_close(small, whole, rtol=1e-12, atol=1e-14)


def test_micro_batches_of_all_ranks_are_one_batch_of_one_process() -> None:
    model = build_model()
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, torch.cat([batch(step, rank) for rank in range(SIZE)])).backward()
        optimizer.step()
    distributed = accumulated(wagma.AllreduceSGD, PARTS)
    torch.testing.assert_close(distributed, values(model), rtol=1e-10, atol=1e-12)


def test_a_step_inside_is_refused(make: Callable[..., Algorithm]) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, make(COMM)) as optimizer:
        loss_of(model, batch(0, RANK)).backward()
        with optimizer.no_sync(), optimizer.no_sync():
            with pytest.raises(RuntimeError, match=r"inside no_sync\(\).*leave the block"):
                optimizer.step()
            with pytest.raises(RuntimeError, match=r"synchronize\(\) inside no_sync\(\)"):
                optimizer.synchronize()
        assert optimizer.version == 0
        gradient = next(model.parameters()).grad
        assert gradient is not None
        assert bool(gradient.any()), "what was refused leaves the gradients"
        optimizer.step()
        assert optimizer.version == 1
