"""Ranks with different numbers of samples train as one process with all of them would."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

import wagma

pytestmark = [pytest.mark.mpi, pytest.mark.counts_ranks]

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
STEPS, FEATURES = 4, 3
INNER: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}

torch.set_num_threads(1)

# Eight ranks are divided in two jobs, of 1 and 7, 2 and 6, ...: together all numbers up to 8.
MARKS = [pytest.mark.long, pytest.mark.every_size]
FIRST = [0, *(pytest.param(n, marks=MARKS) for n in range(1, 5) if SIZE == 8)]


@pytest.fixture(params=FIRST)
def job(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make COMM, RANK and SIZE those of the first ranks, or of the others."""
    comm = COMM.Split(request.param > RANK, RANK)
    for name, value in (("COMM", comm), ("RANK", comm.rank), ("SIZE", comm.size)):
        monkeypatch.setattr(sys.modules[__name__], name, value)
    yield
    comm.Free()


on_every_size = pytest.mark.usefixtures("job")


def model_of(dtype: torch.dtype) -> torch.nn.Linear:
    model = torch.nn.Linear(FEATURES, 2, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    return model


def samples(step: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Draw 0 to 4 samples of a rank; none at rank 1's second step and at every rank's last one."""
    rng = np.random.default_rng([step, rank])
    count = rng.integers(5) * (step < STEPS - 1) * ((step, rank) != (1, 1))
    return torch.from_numpy(rng.normal(size=(count, FEATURES))).to(dtype)


def loss_of(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The mean over the samples, nan without any."""
    return (model(inputs) - inputs.sum(1, keepdim=True)).square().sum(1).mean()


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@on_every_size
@pytest.mark.parametrize("how", ["step", "closure", "clip", "scaler"])
@pytest.mark.parametrize("name", [pytest.param("SGD", marks=pytest.mark.long), "AdamW"])
@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float32, marks=pytest.mark.long), torch.float64], ids=str
)
def test_the_average_is_one_process(dtype: torch.dtype, name: str, how: str) -> None:
    model, alone = model_of(dtype), model_of(dtype)
    bare = INNER[name](alone.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=how == "scaler")
    with wagma.DistributedOptimizer(
        INNER[name](model.parameters()), wagma.AllreduceSGD(COMM)
    ) as opt:
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        alone_schedule = torch.optim.lr_scheduler.ExponentialLR(bare, 0.9)
        for step in range(STEPS):
            parts = [samples(step, rank, dtype) for rank in range(SIZE)]
            own, whole = parts[RANK], torch.cat(parts)

            def evaluate(inputs: torch.Tensor = own) -> torch.Tensor:
                opt.zero_grad()
                loss = loss_of(model, inputs)
                scaler.scale(loss).backward()
                return loss

            opt.weight = len(own)
            before = flat(model)
            if how == "closure":
                opt.step(evaluate)
            else:
                evaluate()  # without samples the gradients are nan
                if how == "clip":
                    opt.clip_grad_norm_(0.1)
                elif how == "scaler":
                    opt.average_gradients(scaler)
                scaler.step(opt)
                scaler.update()
            assert opt.outcome is not None
            assert (opt.weight, opt.outcome.weight) == (1, len(whole))
            if len(whole) == 0:
                assert torch.equal(flat(model), before)
            else:
                bare.zero_grad()
                loss_of(alone, whole).backward()
                if how == "clip":
                    clip_grad_norm_(alone.parameters(), 0.1)
                bare.step()
            tolerance = TOLERANCE[dtype]
            torch.testing.assert_close(flat(model), flat(alone), rtol=tolerance, atol=tolerance)
            schedule.step()
            alone_schedule.step()
    assert len({values.tobytes() for values in COMM.allgather(flat(model).numpy())}) == 1


def weighted_mean(values: list[float], weights: list[float]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def one_parameter() -> tuple[torch.nn.Parameter, Optimizer]:
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    return parameter, torch.optim.SGD([parameter], lr=1.0)


def step(opt: Any, parameter: torch.nn.Parameter, gradient: float, weight: float) -> None:
    parameter.grad = torch.full_like(parameter, gradient if weight else np.nan)
    opt.weight = weight
    opt.step()


WEIGHTS = [[2.0, 1.0, 0.0, 3.5], [0.5, 4.0, 2.0, 0.0]]


def weights_at(version: int) -> list[float]:
    return [WEIGHTS[version % 2][rank % 4] for rank in range(SIZE)]


@on_every_size
def test_local_sgd_weighs_the_steps_of_a_period() -> None:
    parameter, inner = one_parameter()
    models = [0.0] * SIZE
    with wagma.DistributedOptimizer(inner, wagma.LocalSGD(COMM, sync_period=2)) as opt:
        for version in range(4):
            weights = weights_at(version)
            for rank in range(SIZE):
                models[rank] -= (rank + 1 + version) * (weights[rank] > 0)
            step(opt, parameter, RANK + 1 + version, weights[RANK])
            if version % 2:
                period = [sum(w) for w in zip(weights_at(0), weights_at(1), strict=True)]
                models = [weighted_mean(models, period)] * SIZE
            assert parameter[0].item() == pytest.approx(models[RANK], rel=1e-12)


@on_every_size
@pytest.mark.parametrize("algorithm", ["WAGMA", "DPSGD"])
def test_models_have_the_weights_of_their_steps(algorithm: str) -> None:
    parameter, inner = one_parameter()
    made = wagma.DPSGD(COMM) if algorithm == "DPSGD" else wagma.WAGMA(COMM, sync_period=1)
    with wagma.DistributedOptimizer(inner, made) as opt:
        weights = weights_at(0)
        step(opt, parameter, RANK + 1, weights[RANK])
        members = range(SIZE)
        if algorithm == "DPSGD":
            members = sorted({(RANK + by) % SIZE for by in (-1, 0, 1)})
        wanted = weighted_mean([-float(r + 1) for r in members], [weights[r] for r in members])
        assert parameter[0].item() == pytest.approx(wanted, rel=1e-12)
        step(opt, parameter, np.nan, 0.0)
        assert opt.outcome is not None
        assert opt.outcome.weight == 0
        assert parameter[0].item() == pytest.approx(wanted, rel=1e-12)


@on_every_size
def test_eager_sgd_divides_by_the_ranks() -> None:
    parameter, inner = one_parameter()
    with wagma.DistributedOptimizer(inner, wagma.EagerSGD(COMM, grace=20.0)) as opt:
        total = 0.0
        for version in range(4):
            weights = weights_at(version)
            total += sum(w * (r + 1) for r, w in enumerate(weights)) / SIZE
            step(opt, parameter, RANK + 1, weights[RANK])
        opt.synchronize()
        assert parameter[0].item() == pytest.approx(-total, rel=1e-12)


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "2", b"2", None])
def test_wrong_weights(weight: Any) -> None:
    _, inner = one_parameter()
    with (
        wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as opt,
        pytest.raises((TypeError, ValueError), match=r"weight=(-1|nan|inf|'2'|b'2'|None)"),
    ):
        opt.weight = weight


def test_weights_that_cannot_be_used() -> None:
    parameter, inner = one_parameter()
    with wagma.DistributedOptimizer(inner, wagma.SGP(COMM)) as opt:
        opt.weight = 1
        with pytest.raises(ValueError, match="SGP, which pushes weights"):
            opt.weight = 2
    lbfgs = torch.optim.LBFGS([parameter])
    with wagma.DistributedOptimizer(lbfgs, wagma.AllreduceSGD(COMM)) as opt:
        opt.weight = 0
        with pytest.raises(ValueError, match="every rank needs samples"):
            opt.step(lambda: 0.0)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as opt:
        parameter.grad = torch.ones_like(parameter)
        opt.average_gradients()
        opt.weight = 2
        with pytest.raises(RuntimeError, match=r"weight=2.0 after average_gradients\(\)"):
            opt.step()
