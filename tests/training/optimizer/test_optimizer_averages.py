"""Gradients that are averaged before a step: clipped, scaled, refused where there are none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny import (
    ALGORITHMS,
    COMM,
    EACH_KIND,
    RANK,
    SIZE,
    batch,
    build_model,
    loss_of,
    mostly_long,
    on_all_ranks,
    values,
)
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

import wagma
from wagma.collectives import MismatchError
from wagma.training.strategies.gradients import GradientResults

pytestmark = pytest.mark.mpi

STEPS = 8
INNER: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02),
}


def whole_batch(step: int) -> torch.Tensor:
    return torch.cat([batch(step, rank) for rank in range(SIZE)])


@pytest.mark.parametrize("how", ["clip_grad_norm_", "average_gradients", "hook"])
@pytest.mark.parametrize("name", INNER)
def test_clipped_as_one_process_with_the_whole_batch(name: str, how: str) -> None:
    """As DDP has it: what is clipped is the average, and not what is averaged."""
    model, alone = build_model(), build_model()
    bare = INNER[name](alone.parameters())
    norms = []
    with wagma.DistributedOptimizer(INNER[name](model.parameters()), wagma.AllreduceSGD(COMM)) as o:
        if how == "hook":
            o.register_step_pre_hook(
                lambda *_: norms.append(clip_grad_norm_(model.parameters(), 0.1))
            )
        for step in range(STEPS):
            o.zero_grad()
            loss_of(model, batch(step, RANK)).backward()
            if how == "clip_grad_norm_":
                norms.append(o.clip_grad_norm_(0.1))
            elif how == "average_gradients":
                o.average_gradients()
                norms.append(clip_grad_norm_(model.parameters(), 1e9))
                assert torch.equal(o.clip_grad_norm_(0.1), norms[-1]), "averages are used"
            o.step()
            assert o.version == o.stats()["averages"] == step + 1

            bare.zero_grad()
            loss_of(alone, whole_batch(step)).backward()
            norm = clip_grad_norm_(alone.parameters(), 0.1)
            assert norm > 0.1
            bare.step()
            torch.testing.assert_close(norms[step], norm, rtol=1e-10, atol=0)
        o.synchronize()
        assert o.stats()["steps"] == STEPS
    torch.testing.assert_close(values(model), values(alone), rtol=1e-9, atol=1e-11)
    assert len(set(on_all_ranks(values(model)))) == 1


def test_with_uneven_data() -> None:
    """A rank without data takes part in the averages of the others."""
    model, alone = build_model(), build_model()
    bare = INNER["SGD"](alone.parameters())
    inner = INNER["SGD"](model.parameters())
    steps = STEPS if RANK == 0 else 3
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        with optimizer.join(steps) as last:
            for step in range(steps):
                optimizer.zero_grad()
                loss_of(model, batch(step, RANK)).backward()
                optimizer.average_gradients()
                optimizer.step()
        assert optimizer.version == last
        assert optimizer.stats()["steps"] == steps
    for step in range(STEPS):
        bare.zero_grad()
        loss_of(alone, whole_batch(step) if step < 3 else batch(step, 0)).backward()
        bare.step()
    torch.testing.assert_close(values(model), values(alone), rtol=1e-9, atol=1e-11)


# ---- with a scaler -------------------------------------------------------------------------------


def scaled_backward(weights: torch.Tensor, scaler: torch.amp.GradScaler, factor: float) -> None:
    loss: Any = scaler.scale((weights * factor).sum())
    loss.backward()


@pytest.mark.parametrize("clip", [True, False])
def test_an_overflow_on_one_rank_leaves_the_step_out_on_all(clip: bool) -> None:
    weights = torch.nn.Parameter(torch.zeros(3))
    inner = torch.optim.SGD([weights], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        for step in range(4):
            optimizer.zero_grad()
            scaled_backward(weights, scaler, torch.inf if step == 1 and RANK == 0 else 1.0)
            optimizer.average_gradients(scaler)
            if clip:
                scaler.unscale_(optimizer)
                assert step == 1 or optimizer.clip_grad_norm_(1e9).item() == pytest.approx(3**0.5)
            scaler.step(optimizer)
            scaler.update()
            assert optimizer.version == step + 1
        assert weights.tolist() == [-3] * 3
        assert scaler.get_scale() == 32
        assert (optimizer.stats()["steps"], optimizer.stats()["passive_steps"]) == (3, 1)
        optimizer.synchronize()


@pytest.mark.mpi(min_size=2)
def test_different_scales_are_refused_on_every_rank() -> None:
    weights = torch.nn.Parameter(torch.zeros(3))
    inner = torch.optim.SGD([weights], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0 * (2 if RANK == SIZE - 1 else 1))
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        scaled_backward(weights, scaler, 1.0)
        with pytest.raises(MismatchError, match="gradients of different scales"):
            optimizer.average_gradients(scaler)
        COMM.Barrier()


def test_a_scaler_that_comes_too_early_or_not_at_all_is_refused() -> None:
    weights = torch.nn.Parameter(torch.zeros(3))
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=64.0)
    with wagma.DistributedOptimizer(
        torch.optim.SGD([weights], lr=1.0), wagma.AllreduceSGD(COMM)
    ) as optimizer:
        scaled_backward(weights, scaler, 1.0)
        with pytest.raises(TypeError, match="scaler is a float"):
            optimizer.average_gradients(64.0)
        optimizer.average_gradients()
        with pytest.raises(RuntimeError, match=r"opt\.average_gradients\(scaler\)"):
            scaler.step(optimizer)
        optimizer.zero_grad()
        scaler.update()
        scaled_backward(weights, scaler, 1.0)
        scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError, match=r"Average before unscale_\(\)"):
            optimizer.average_gradients(scaler)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_long(ALGORITHMS, EACH_KIND))
def test_only_averages_of_gradients_can_be_had(name: str) -> None:
    model = build_model()
    inner = INNER["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        loss_of(model, batch(0, RANK)).backward()
        if name in ("AllreduceSGD", "Auto"):
            optimizer.average_gradients()
        else:
            results = isinstance(optimizer.algorithm, GradientResults)
            words = "hook of the inner step" if results else r"after backward\(\) and before"
            for call in (optimizer.average_gradients, lambda: optimizer.clip_grad_norm_(1.0)):
                with pytest.raises(RuntimeError, match=words):
                    call()
            assert optimizer.version == 0
        optimizer.step()
        assert optimizer.version >= 1


@pytest.mark.parametrize("name", mostly_long(ALGORITHMS, EACH_KIND))
@pytest.mark.parametrize("set_to_none", [True, False])
def test_synchronize_between_backward_and_step_is_refused(name: str, set_to_none: bool) -> None:
    """It is Horovod's recipe for clipping, which would train nothing here."""
    model = build_model()
    inner = INNER["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        for step in range(2):
            optimizer.zero_grad(set_to_none)
            loss_of(model, batch(step, RANK)).backward()
            version = optimizer.version
            with pytest.raises(RuntimeError, match=r"opt\.clip_grad_norm_\(max_norm\)"):
                optimizer.synchronize()
            assert optimizer.version == version
            optimizer.step()
            COMM.Barrier()
        optimizer.synchronize()
        optimizer.zero_grad(set_to_none)
        optimizer.synchronize()


def test_a_misuse_is_named() -> None:
    model = build_model()
    inner = INNER["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        loss_of(model, batch(0, RANK)).backward()
        optimizer.average_gradients()
        with pytest.raises(RuntimeError, match="twice before a step"):
            optimizer.average_gradients()
        with pytest.raises(RuntimeError, match=r"step\(closure\) after average_gradients\(\)"):
            optimizer.step(lambda: 0.0)
        with pytest.raises(RuntimeError, match="gradients wait for a step"):
            optimizer.synchronize()
        loss_of(model, batch(0, RANK)).backward()
        with pytest.raises(RuntimeError, match=r"backward\(\) after average_gradients\(\)"):
            optimizer.step()
        optimizer.zero_grad()
        loss_of(model, batch(0, RANK)).backward()
        optimizer.average_gradients()
        model.zero_grad()  # the step is left out, and the next one averages
        version = optimizer.version
        loss_of(model, batch(0, RANK)).backward()
        optimizer.step()
        assert optimizer.version == version + 1
        assert len(set(on_all_ranks(values(model)))) == 1
        with optimizer.no_sync(), pytest.raises(RuntimeError, match="leave the block"):
            optimizer.average_gradients()
