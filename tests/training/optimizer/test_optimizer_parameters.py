"""Parameters in groups, frozen, added late, without gradients, of 16 bits."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tiny import (
    ALGORITHMS,
    COMM,
    EACH_KIND,
    ON_TIME,
    OPTIMIZERS,
    RANK,
    SIZE,
    batch,
    build_model,
    loss_of,
    mostly_long,
    on_all_ranks,
    step_on,
    values,
)
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm
from wagma.training.strategies.gradients import GradientAveraging

pytestmark = pytest.mark.mpi


@pytest.fixture(params=[name for name in ON_TIME if "DiLoCo" not in name])  # it makes no mean
def make(request: pytest.FixtureRequest) -> Callable[..., Algorithm]:
    return ON_TIME[request.param]


def in_groups(model: torch.nn.Sequential) -> Optimizer:
    """Two groups with rates of their own."""
    return torch.optim.SGD(
        [
            {"params": model[0].parameters(), "lr": 0.02, "weight_decay": 0.1},
            {"params": model[2].parameters()},
        ],
        lr=0.2,
        momentum=0.9,
    )


def freeze(model: torch.nn.Sequential, step: int) -> None:
    """Some parameters are frozen at the start, others later, and all are free in between."""
    model[0].weight.requires_grad_(step >= 3)
    model[2].bias.requires_grad_(step < 6)


def test_groups_and_frozen_parameters_as_in_one_process() -> None:
    model, alone = build_model(), build_model()
    freeze(model, 0)
    bare = in_groups(alone)
    inner = in_groups(model)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        for step in range(9):
            freeze(model, step)
            freeze(alone, step)
            before = model[0].weight.detach().clone(), model[2].bias.detach().clone()
            step_on(model, optimizer, batch(step, RANK))
            step_on(alone, bare, torch.cat([batch(step, rank) for rank in range(SIZE)]))
            assert torch.equal(model[0].weight, before[0]) == (step < 3)
            assert torch.equal(model[2].bias, before[1]) == (step >= 6)
    torch.testing.assert_close(values(model), values(alone), rtol=1e-10, atol=1e-12)


def test_frozen_parameters_stay_while_models_are_averaged() -> None:
    model = build_model()
    model[0].weight.requires_grad_(False)
    start = model[0].weight.clone()
    algorithm = ON_TIME["WAGMA"](COMM)
    with wagma.DistributedOptimizer(in_groups(model), algorithm) as optimizer:
        for step in range(8):
            step_on(model, optimizer, batch(step, RANK))
    torch.testing.assert_close(model[0].weight, start, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    "dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", ["WAGMA", "AllreduceSGD", "SGP", "EagerSGD-solo"])
def test_sixteen_bit_parameters(dtype: torch.dtype, name: str) -> None:
    model = build_model().to(dtype)
    start = values(model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        while optimizer.version < 4:
            step_on(model, optimizer, batch(optimizer.version, RANK).to(dtype))
        optimizer.synchronize()
    assert bool(values(model).isfinite().all())
    assert not torch.equal(values(model), start)
    assert len(set(on_all_ranks(values(model).float()))) == 1


def test_no_gradient_on_some_ranks(make: Callable[..., Algorithm]) -> None:
    """Averaging gradients it counts as zero; averaging models the rank leaves the parameter."""
    used, rare, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    inner = torch.optim.SGD([used, rare, unused], lr=1.0, weight_decay=0.5)
    algorithm = make(COMM)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        (used.sum() + (rare.sum() if RANK == SIZE - 1 else 0)).backward()
        COMM.Barrier()
        optimizer.step()
        optimizer.synchronize()
    stepped = (1 - 1 - 0.5, 1)
    mean = np.mean([stepped[rank != SIZE - 1] for rank in range(SIZE)])
    if isinstance(algorithm, GradientAveraging):
        mean = 1 - 1 / SIZE - 0.5
    torch.testing.assert_close(used.data, torch.full((3,), 1 - 1 - 0.5))
    torch.testing.assert_close(rare.data, torch.full((3,), float(mean)))
    torch.testing.assert_close(unused.data, torch.ones(3))


def test_a_parameter_elsewhere_is_refused_on_every_rank(make: Callable[..., Algorithm]) -> None:
    tensors = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    if RANK == SIZE - 1:
        tensors[1] = torch.nn.Parameter(torch.ones(2, device="meta"))
    with pytest.raises(ValueError, match=r"parameter 1 is on meta.*model\.to_empty"):
        wagma.DistributedOptimizer(torch.optim.SGD(tensors), make(COMM))


# ---- added late ----------------------------------------------------------------------------------


def loss_with(model: torch.nn.Module, extra: torch.nn.Linear | None, step: int, rank: int) -> None:
    inputs = batch(step, rank)
    loss = loss_of(model, inputs)
    if extra is not None:
        loss = loss + extra(inputs).square().mean()
    loss.backward()


def extra_layer(seed: int) -> torch.nn.Linear:
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 2).double()


def test_late_added_parameters_as_in_one_process() -> None:
    model, alone = build_model(), build_model()
    bare = OPTIMIZERS["SGD"](alone.parameters())
    inner = OPTIMIZERS["SGD"](model.parameters())
    extra, extra_alone = None, None
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        for step in range(8):
            if step == 3:
                extra, extra_alone = extra_layer(seed=RANK), extra_layer(seed=0)
                optimizer.add_param_group({"params": extra.parameters(), "lr": 0.03})
                bare.add_param_group({"params": extra_alone.parameters(), "lr": 0.03})
                assert torch.equal(extra.weight, extra_alone.weight), "rank 0's"
                assert optimizer.version == 3
            optimizer.zero_grad()
            loss_with(model, extra, step, RANK)
            optimizer.step()
            bare.zero_grad()
            for rank in range(SIZE):
                loss_with(alone, extra_alone, step, rank)
            for group in bare.param_groups:
                for parameter in group["params"]:
                    parameter.grad /= SIZE
            bare.step()
    assert extra is not None
    assert extra_alone is not None
    torch.testing.assert_close(values(model), values(alone), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(values(extra), values(extra_alone), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", mostly_long(ALGORITHMS, EACH_KIND))
def test_training_goes_on_with_late_added_parameters(name: str) -> None:
    model, extra = build_model(), extra_layer(seed=RANK)
    inner = OPTIMIZERS["Adam"](model.parameters())
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        while optimizer.version < 3:
            step_on(model, optimizer, batch(optimizer.version, RANK))
        optimizer.synchronize()
        moments = inner.state[model[0].weight]["exp_avg"].clone()
        optimizer.add_param_group({"params": list(extra.parameters())})
        assert optimizer.version == 4
        assert torch.equal(inner.state[model[0].weight]["exp_avg"], moments)
        while optimizer.version < 12:
            optimizer.zero_grad()
            loss_with(model, extra, optimizer.version, RANK)
            optimizer.step()
        optimizer.synchronize()
        assert optimizer.version == 13
    assert len(set(on_all_ranks(values(model), values(extra)))) == 1


def test_synchronisations_stay_where_they_are() -> None:
    model, extra = build_model(), extra_layer(seed=0)
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, ON_TIME["WAGMA"](COMM)) as optimizer:
        for step in range(3):
            step_on(model, optimizer, batch(step, RANK))
        optimizer.add_param_group({"params": extra.parameters()})
        for step in range(3, 12):
            COMM.Barrier()
            step_on(model, optimizer, batch(step, RANK))
            outcome = optimizer.outcome
            assert outcome is not None
            synchronises = optimizer.version % 4 == 0
            if synchronises or SIZE != 2:  # of two ranks one may be late, or none
                assert (len(outcome.contributors) == SIZE) == (synchronises or SIZE == 1)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("fault", ["shape", "twice", "version"])
def test_wrong_groups_are_refused_on_every_rank(fault: str) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = wagma.WAGMA(COMM, sync_period=None)
    wrong = RANK == SIZE - 1
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        group = {"params": [torch.nn.Parameter(torch.ones(3, dtype=torch.float64))]}
        if fault == "shape" and wrong:
            group = {"params": [torch.nn.Parameter(torch.ones(4, dtype=torch.float64))]}
        if fault == "twice" and wrong:
            group = {"params": [model[0].weight]}
        if fault == "version" and wrong:
            step_on(model, optimizer, batch(0, RANK))
        words = {
            "shape": rf"those of ranks \[{SIZE - 1}\] are not that of rank 0",
            "twice": "appear in more than one parameter group",
            "version": r"at one version, they are at \[0.*1\]: add it before the first step",
        }
        kind = RuntimeError if fault == "version" else ValueError
        with pytest.raises(kind, match=words[fault]):
            optimizer.add_param_group(group)
        assert len(optimizer.param_groups) == 1
        while optimizer.version < 5:
            step_on(model, optimizer, batch(optimizer.version, RANK))
        optimizer.synchronize()
        assert len(set(on_all_ranks(values(model)))) == 1
