"""Cannikin on real ranks, whose speeds are those of a clock that the tests move."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from dropping import Clock
from mpi4py import MPI
from refusals import error_everywhere
from tiny import on_all_ranks, values

import wagma
from wagma.collectives import MismatchError
from wagma.training import buckets
from wagma.training import clock as device_clock
from wagma.training.strategies.measurements import StepClock

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
several = pytest.mark.skipif(SIZE == 1, reason="one rank has all")
SAMPLES = torch.randn(4096, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

CLOCK = Clock()


@pytest.fixture(autouse=True)
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps take the time that `train` adds, and all wait for the slowest in an average."""
    for module in (device_clock, buckets):
        monkeypatch.setattr(module, "time", CLOCK)
    end = StepClock.end

    def end_together(*args: Any, **options: Any) -> None:
        CLOCK.now = COMM.allreduce(CLOCK.now, MPI.MAX)
        end(*args, **options)

    monkeypatch.setattr(StepClock, "end", end_together)


def build(layers: int = 3) -> torch.nn.Module:
    torch.manual_seed(RANK)
    return torch.nn.Sequential(
        *(torch.nn.Linear(6, 6, dtype=torch.float64) for _ in range(layers)),
        torch.nn.Linear(6, 1, dtype=torch.float64),
    )


def loss_of(model: torch.nn.Module, samples: torch.Tensor) -> torch.Tensor:
    return (model(samples) - samples.sum(1, keepdim=True)).square().mean()


def own(batches: tuple[int, ...], step: int) -> torch.Tensor:
    """This rank's samples of a step."""
    start = step * sum(batches) + sum(batches[:RANK])
    return SAMPLES[torch.arange(start, start + batches[RANK]) % len(SAMPLES)]


def make(model: torch.nn.Module, batch_range: Any, **options: Any) -> wagma.DistributedOptimizer:
    inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    return wagma.DistributedOptimizer(inner, wagma.Cannikin(COMM, batch_range, **options))


def train(
    opt: wagma.DistributedOptimizer,
    model: torch.nn.Module,
    steps: int,
    times: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Steps of a rank that take so many seconds each: a constant, and for each sample."""
    for _ in range(steps):
        opt.zero_grad()
        assert opt.plan is not None
        samples = own(opt.plan.batches, opt.version)
        CLOCK.now += times[0] + times[1] * len(samples)
        if len(samples):
            loss_of(model, samples).backward()
        opt.step()


@pytest.mark.parametrize(
    ("transport", "bucket_bytes"),
    [
        ("shm", None),
        ("mpi", 1),
        pytest.param("shm", 1, marks=pytest.mark.long),
        pytest.param("mpi", None, marks=pytest.mark.long),
    ],
)
def test_gradients_are_those_of_one_process(transport: Any, bucket_bytes: Any) -> None:
    """Whatever the shares are; the weight is the planned batch unless the loop sets it."""
    total = 8 * SIZE + 3
    model = build()
    one = build()
    with make(model, total, bucket_bytes=bucket_bytes, transport=transport) as opt:
        one.load_state_dict(model.state_dict())
        sgd = torch.optim.SGD(one.parameters(), lr=0.01, momentum=0.5)
        algorithm = opt.algorithm
        assert isinstance(algorithm, wagma.Cannikin)
        for epoch in range(4):
            assert opt.plan is not None
            batches = opt.plan.batches
            assert sum(batches) == total
            assert opt.weight == batches[RANK]
            for _ in range(4):
                version = opt.version
                train(opt, model, 1, (0.0, 0.0005 * (1 + RANK)))
                sgd.zero_grad()
                start = version * total
                loss_of(one, SAMPLES[torch.arange(start, start + total) % len(SAMPLES)]).backward()
                sgd.step()
            assert torch.allclose(values(model), values(one), rtol=1e-12, atol=1e-13), epoch
            rest = SAMPLES[: RANK + (epoch % 2)]  # the last of an epoch is smaller
            opt.zero_grad()
            opt.weight = len(rest)
            if len(rest):
                loss_of(model, rest).backward()
            opt.step()
            sgd.zero_grad()
            count = sum(rank + (epoch % 2) for rank in range(SIZE))
            for rank in range(SIZE):
                if size := rank + (epoch % 2):
                    (loss_of(one, SAMPLES[:size]) * size / count).backward()
            if count:
                sgd.step()
            algorithm.replan()
            assert len(set(COMM.allgather(str(opt.plan)))) == 1


@several
def test_a_slow_rank_gets_less_and_one_that_becomes_slow_too() -> None:
    speeds = np.array([1.0 + 3.0 * (rank == 0) for rank in range(SIZE)])
    model = build()
    total = 20 * SIZE
    with make(model, total, epoch_steps=6) as opt:
        for _ in range(4):
            train(opt, model, 6, (0.01, 0.002 * speeds[RANK]))
        assert isinstance(opt.algorithm, wagma.Cannikin)
        plans = opt.algorithm.plans
        seconds = [plan.measured for plan in plans if plan.measured]
        assert len(seconds) == 4
        assert plans[0].batches == (20,) * SIZE
        for plan in plans[1:]:
            assert 0 < plan.batches[0] < 15
        took = [0.01 + 0.002 * s * b for s, b in zip(speeds, plans[3].batches, strict=True)]
        assert max(took) < 0.01 + 0.002 * speeds[0] * 20, "slower than the even split"
        assert plans[3].predicted == pytest.approx(max(took), rel=1e-3)
        assert plans[3].measured == pytest.approx(max(took))
        assert opt.stats()["prediction_error"] == pytest.approx(
            plans[3].predicted / plans[3].measured - 1
        )
        before = opt.plan.batches[SIZE - 1]
        speeds[SIZE - 1] *= 4
        train(opt, model, 12, (0.01, 0.002 * speeds[RANK]))
        assert opt.plan.batches[SIZE - 1] < 0.75 * before


def test_the_total_batch_is_chosen_and_learning_rates_follow() -> None:
    model = build()
    with make(model, (2 * SIZE, 64 * SIZE), epoch_steps=4, scaling="sqrt") as opt:
        rates = []
        opt.register_step_post_hook(lambda *_: rates.append(0))
        inner = opt._inner
        inner.register_step_pre_hook(lambda one, *_: rates.append(one.param_groups[0]["lr"]))
        for _ in range(6):
            train(opt, model, 4, (0.02, 0.0))
        stats = opt.stats()
        if SIZE > 1:  # a step takes as long with any batch
            assert stats["total_batch"] > 2 * SIZE
            assert stats["noise_scale"] > 0
        factor = math.sqrt(opt.plan.total_batch / (2 * SIZE))
        assert stats["rate_factor"] == pytest.approx(factor)
        train(opt, model, 1)
        assert inner.param_groups[0]["lr"] == 0.01
        used = [one for one in rates if one]
        assert used[-1] == pytest.approx(0.01 * factor)
        opt.synchronize()
        assert len(set(on_all_ranks(values(model)))) == 1


@pytest.mark.parametrize(
    "baseline",
    ["lb-bsp", *(pytest.param(one, marks=pytest.mark.long) for one in ("even", "adaptdl"))],
)
def test_baselines(baseline: Any) -> None:
    model = build()
    total = (10 * SIZE, 20 * SIZE) if baseline == "adaptdl" else 10 * SIZE
    with make(model, total, epoch_steps=3, baseline=baseline) as opt:
        for _ in range(3):
            train(opt, model, 3, (0.0, 0.002 * (1 + 3 * (RANK == 0))))
            batches = np.array(opt.plan.batches)
            if baseline == "even":
                assert (batches == 10).all()
            elif baseline == "adaptdl":
                assert np.ptp(batches) <= 1
        if baseline == "lb-bsp" and SIZE > 1:  # and then perhaps back
            assert isinstance(opt.algorithm, wagma.Cannikin)
            assert min(plan.batches[0] for plan in opt.algorithm.plans) <= 5
        assert batches.sum() == 10 * SIZE or baseline == "adaptdl"


def test_a_checkpoint_has_what_was_learned() -> None:
    model, again = build(), build()
    with make(model, 10 * SIZE, epoch_steps=3) as opt:
        for _ in range(3):
            train(opt, model, 3, (0.001, 0.0005 * (1 + RANK)))
        opt.synchronize()
        state, plan = opt.state_dict(), opt.plan
    with make(again, 10 * SIZE, epoch_steps=3) as opt:
        again.load_state_dict(model.state_dict())
        opt.load_state_dict(state)
        assert opt.plan == plan
        assert opt.weight == plan.batches[RANK]
        train(opt, again, 3, (0.001, 0.0005 * (1 + RANK)))
        assert opt.plan.predicted is not None or SIZE == 1


def test_states_of_different_plans_start_anew_at_once() -> None:
    model = build()
    with make(model, (4 * SIZE, 32 * SIZE), epoch_steps=3) as opt:
        states = []
        for _ in range(4):
            train(opt, model, 3, (0.002, 0.0002 * (1 + RANK)))
            states.append(copy.deepcopy(opt.state_dict()))
    with make(build(), (4 * SIZE, 32 * SIZE), epoch_steps=3) as opt:
        opt.load_state_dict(states[min(RANK, 3)])
        assert len(set(COMM.allgather(opt.plan))) == 1
        assert opt.plan.batches == (4,) * SIZE or SIZE == 1


@several
def test_a_step_counts_where_all_ranks_had_the_planned_samples() -> None:
    """One that exchanges samples between two ranks has the planned sum, and counts on none."""
    model = build()
    with make(model, 4 * SIZE) as opt:
        assert isinstance(opt.algorithm, wagma.Cannikin)
        plan = opt.plan
        for _ in range(6):
            opt.zero_grad()
            opt.weight = 4.0 + (RANK == 0) - (RANK == 1)
            loss_of(model, SAMPLES[:4]).backward()
            opt.step()
        assert opt.algorithm.replan() == plan
        train(opt, model, 3)
        opt.algorithm.replan()
        assert opt.algorithm.plans[0].measured is not None


def test_learning_rates_are_as_they_were_after_a_step_that_fails() -> None:
    model = build()
    inner = torch.optim.LBFGS(model.parameters(), lr=0.1)
    algorithm = wagma.Cannikin(COMM, (SIZE, 64 * SIZE), scaling="sqrt")
    with wagma.DistributedOptimizer(inner, algorithm) as opt:
        algorithm._factor = 2.0

        def closure() -> torch.Tensor:
            assert inner.param_groups[0]["lr"] == 0.2
            raise ArithmeticError

        with pytest.raises(ArithmeticError):
            opt.step(closure)
        assert inner.param_groups[0]["lr"] == 0.1


def test_what_cannot_be_learned_keeps_its_plan(caplog: pytest.LogCaptureFixture) -> None:
    model = build()
    with make(model, SIZE, epoch_steps=3) as opt:
        train(opt, model, 9)
        assert opt.plan.batches == (1,) * SIZE
    told = [one for one in caplog.records if "raise batch_range" in one.getMessage()]
    assert bool(told) == (RANK == 0 and SIZE > 1)


def test_too_few_steps_leave_the_plan_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """What was measured is kept for the next plan."""
    model = build()
    with make(model, 10 * SIZE) as opt:
        plan = opt.plan
        assert isinstance(opt.algorithm, wagma.Cannikin)
        for _ in range(3):
            assert opt.algorithm.replan() == plan
        told = [one for one in caplog.records if "set_batches" in one.getMessage()]
        assert len(told) == (RANK == 0)
        for _ in range(2):
            train(opt, model, 2)
            opt.algorithm.replan()
        assert [plan.measured is None for plan in opt.algorithm.plans] == [False, True]


def test_averages_may_be_clipped_and_plans_are_made_all_the_same() -> None:
    model = build()
    with make(model, (4 * SIZE, 16 * SIZE), epoch_steps=4) as opt:
        assert isinstance(opt.algorithm, wagma.Cannikin)
        for step in range(9):
            opt.zero_grad()
            loss = loss_of(model, own(opt.plan.batches, step))
            if step == 1 and RANK == 0:
                loss = loss * math.nan
            loss.backward()
            norm = opt.clip_grad_norm_(1e9)
            if step == 1:  # nobody's model becomes NaN
                assert norm.isnan()
                opt.zero_grad()
                continue
            opt.step()
        assert len(opt.algorithm.plans) == 3
        assert values(model).isfinite().all()
        weight = opt.weight
        with opt.join(1 + RANK % 2):
            train(opt, model, 1 + RANK % 2)
        assert opt.weight == opt.plan.batches[RANK]
        assert weight == opt.weight


def test_a_weight_that_was_set_outlasts_a_plan() -> None:
    model = build()
    with make(model, 10 * SIZE) as opt:
        assert isinstance(opt.algorithm, wagma.Cannikin)
        train(opt, model, 4)
        opt.weight = 3.0
        opt.algorithm.replan()
        assert opt.weight == 3.0
        loss_of(model, SAMPLES[:3]).backward()
        opt.step()
        assert opt.outcome is not None
        assert opt.outcome.weight == 3 * SIZE
        assert opt.weight == opt.plan.batches[RANK]


def test_epochs_are_counted_in_steps_and_not_in_evaluations() -> None:
    model = build()
    inner = torch.optim.LBFGS(model.parameters(), max_iter=3)
    with wagma.DistributedOptimizer(inner, wagma.Cannikin(COMM, 10 * SIZE, epoch_steps=4)) as opt:
        assert isinstance(opt.algorithm, wagma.Cannikin)
        for _ in range(3):

            def closure() -> torch.Tensor:
                opt.zero_grad()
                loss = loss_of(model, SAMPLES[:10])
                loss.backward()
                return loss

            opt.step(closure)
        assert opt.version > 4  # evaluations
        assert len(opt.algorithm.plans) == 1


def test_a_state_of_other_arguments_is_not_taken_blindly(caplog: pytest.LogCaptureFixture) -> None:
    model = build()
    with make(model, 10 * SIZE, epoch_steps=3) as opt:
        train(opt, model, 9)
        opt.synchronize()
        state = opt.state_dict()
    told = []
    for batch_range, options, text in (
        ((20 * SIZE, 40 * SIZE), {}, "outside batch_range"),
        (20 * SIZE, {"baseline": "even"}, "learned anew"),
    ):
        with make(build(), batch_range, **options) as opt:
            opt.load_state_dict(state)
            assert sum(opt.plan.batches) == 20 * SIZE
            train(opt, model, 1)
        told.append(text in caplog.text)
    assert told == [RANK == 0] * 2


def test_bad_input() -> None:
    model = build()
    for batch_range, options, kind, text in (
        (0, {}, ValueError, "batch_range is 0"),
        ((8, 4), {}, ValueError, "(smallest, largest)"),
        ((1, 2, 3), {}, ValueError, "(smallest, largest)"),
        (2.5, {}, TypeError, "batch_range is 2.5"),
        (64, {"scaling": "linear"}, ValueError, "'adascale'"),
        (64, {"baseline": "ddp"}, ValueError, "'lb-bsp'"),
        ((64, 128), {"baseline": "even"}, ValueError, "one total batch"),
        (64, {"epoch_steps": 2}, ValueError, "epoch_steps is 2: at least 3"),
        ("64", {}, TypeError, "batch_range='64'"),
        (64, {"max_batch": 64 // SIZE - 1}, ValueError, "max_batch"),
        (64, {"max_batch": 0}, ValueError, "max_batch is 0"),
    ):
        call: Any = lambda b=batch_range, o=options: make(model, b, **o)  # noqa: E731
        assert text in error_everywhere(COMM, call, kind)
    if SIZE > 1:
        call = lambda: make(model, SIZE - 1)  # noqa: E731
        assert "one sample for each rank" in error_everywhere(COMM, call, ValueError)
        call = lambda: make(model, 64 + RANK)  # noqa: E731
        assert "batch_range differs" in error_everywhere(COMM, call, MismatchError)
    for call in (
        lambda: wagma.Cannikin(COMM, 64).plan,
        lambda: wagma.Cannikin(COMM, 64).replan(),
        lambda: wagma.Cannikin(COMM, 64).stats(),
    ):
        with pytest.raises(RuntimeError, match="serves no optimizer"):
            call()
