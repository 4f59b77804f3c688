"""DropCompute where something ends: epochs, periods, trainings, steps that fail, checkpoints."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from dropping import COMM, MOST, RANK, SIZE, Clock, compute, flat, loss_of, made, model_of, sample

import wagma

pytestmark = [pytest.mark.mpi, pytest.mark.counts_ranks]


def around(algorithm: wagma.Algorithm, model: torch.nn.Module, *given: Any, **more: Any) -> Any:
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    policy = wagma.DropCompute(algorithm, *given, **more)
    return wagma.DistributedOptimizer(inner, policy, model=model)


def local_step(opt: Any, model: torch.nn.Module, clock: Clock, seconds: float) -> None:
    opt.zero_grad()
    for batch in opt.micro_batches([sample(opt.version, RANK, 0)]):
        loss_of(model, batch).backward()
        clock.now += seconds
    opt.step()


def periods_of(kind: str) -> wagma.Algorithm:
    if kind == "WAGMA":
        return wagma.WAGMA(COMM, sync_period=4, missed="fast-forward", timeout=20.0)
    return {"LocalSGD": wagma.LocalSGD, "DiLoCo": wagma.DiLoCo}[kind](COMM, 4, timeout=20.0)


@pytest.mark.parametrize("kind", ["LocalSGD", "DiLoCo", "WAGMA"])
def test_all_ranks_end_at_one_version(kind: str, clock: Clock) -> None:
    """A rank that leaves out the rest of a period goes no further than the training."""
    model = model_of()
    with around(periods_of(kind), model, 1, 2.5) as opt:
        while opt.version < opt.steps_to_do(10):
            local_step(opt, model, clock, 2.0 if RANK == 0 else 0.5)
        assert opt.version == 12
        opt.synchronize()
        assert len(set(COMM.allgather(flat(model).numpy().tobytes()))) == 1
    with around(periods_of(kind), model, 1, 2.5) as opt:
        with opt.join(6 - RANK % 2) as last:
            while opt.version < last - RANK % 2:
                local_step(opt, model, clock, 2.0 if RANK == 0 else 0.5)
        assert set(COMM.allgather(opt.version)) == {6}
        opt.synchronize()
        assert len(set(COMM.allgather(flat(model).numpy().tobytes()))) == 1


def test_a_synchronisation_ends_a_period(clock: Clock) -> None:
    """The time before it does not count for the next one."""
    model = model_of()
    with around(wagma.LocalSGD(COMM, 4), model, 1, 4.5) as opt:
        for _ in range(3):
            local_step(opt, model, clock, 1.0)
        opt.synchronize()
        for version in range(4, 6):
            assert opt.version == version
            local_step(opt, model, clock, 1.0)
        assert opt.version == 6


def test_two_epochs(clock: Clock) -> None:
    model = model_of()
    with made(model, correction="stochastic", threshold=2.5) as opt:
        for _ in range(2):
            batches, seen = iter(range(7 + RANK)), []
            while True:
                opt.zero_grad()
                for number in opt.micro_batches(batches):
                    seen.append(number)
                    loss_of(model, sample(0, RANK, number)).backward()
                    clock.now += 1.0
                opt.step()
                if opt.epoch_done:
                    break
            assert seen == list(range(7 + RANK))


@pytest.mark.parametrize("why", ["preempted", "left", "weightless"])
def test_a_step_without_a_finished_one_is_not_the_end(why: str, clock: Clock, caplog: Any) -> None:
    model = torch.nn.Sequential(model_of(), torch.nn.Identity())
    preempt = why == "preempted"
    with around(
        wagma.AllreduceSGD(COMM), model, 2, 1.0,
        compensation="resample", correction="stochastic", preempt=preempt,
    ) as opt:  # fmt: skip
        before = flat(model)
        batches, seen = iter(range(3)), []
        for step in range(9):
            opt.zero_grad()
            weight = (lambda _: 0.0) if why == "weightless" and step == 0 else (lambda _: 1.0)
            for number in opt.micro_batches(batches, weight=weight):
                if why == "left" and step == 0:
                    break
                with opt.micro_batch():
                    clock.now += 5.0 if step == 0 else 0.1
                    loss_of(model, sample(0, RANK, number)).backward()
                    seen.append(number)
            opt.step()
            assert step > 0 or not opt.epoch_done
            if step == 0:
                assert torch.equal(flat(model), before)
            if opt.epoch_done:
                break
        assert seen == [0, 1, 2]
    assert ("no micro-batch is finished" in caplog.text) == preempt


def test_learning_rates_are_left_alone_in_the_end(clock: Clock) -> None:
    """After a step that fails, and when the training is closed."""
    model = model_of()
    opt = made(model, correction="constant", threshold=3.0, calibration_steps=2)
    inner = opt._inner
    with opt:
        for step in range(3):
            compute(opt, model, clock, step)
            opt.step()
        rate = 1 - opt.stats()["expected_drop_rate"]
        assert 0 < rate < 1 or SIZE == 1
        rates = []
        hook = opt.register_step_pre_hook(lambda *_: rates.append(inner.param_groups[0]["lr"]))
        fails = opt.register_step_pre_hook(lambda *_: 1 / 0)
        compute(opt, model, clock, 3)
        with pytest.raises(ZeroDivisionError):
            opt.step()
        fails.remove()
        hook.remove()
        assert rates == [pytest.approx(0.1 * rate)]
        assert inner.param_groups[0]["lr"] == 0.1
    rates.clear()
    inner.register_step_pre_hook(lambda *_: rates.append(inner.param_groups[0]["lr"]))
    inner.step()
    assert rates == [0.1]


def test_a_training_begun_without_it_goes_on(clock: Clock, caplog: Any) -> None:
    """It measures from where the training is; arguments that have changed are the new ones."""
    model = model_of()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(plain, wagma.AllreduceSGD(COMM)) as opt:
        saved = copy.deepcopy(opt.state_dict())
        saved["wagma"]["version"] = 45
    with made(model, calibration_steps=2) as opt:
        opt.load_state_dict(saved)
        for step in range(4):
            compute(opt, model, clock, step)
            opt.step()
        assert caplog.text.count("measuring again") == (RANK == 0 and SIZE > 1)
        assert SIZE == 1 or opt.stats()["expected_speedup"] > 0
        saved = copy.deepcopy(opt.state_dict())
    with made(model, micro_batches=8, threshold=3.0) as opt:
        opt.load_state_dict(saved)
        assert (opt.micro_batches_per_step, opt.stats()["threshold"]) == (8, 3.0)
    assert ("other arguments of DropCompute, micro_batches=4" in caplog.text) == (RANK == 0)


def test_measuring_again_is_counted_in_versions(clock: Clock) -> None:
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    model = model_of()
    with around(wagma.LocalSGD(COMM, 2), model, 1, calibration_steps=1, recalibrate=6) as opt:
        measures = []
        while opt.version < 16:
            local_step(opt, model, clock, 4.0 if RANK == 0 else 1.0)
            if opt.version % 2 == 0:
                measures.append(opt.stats()["threshold"] == math.inf)
        # A period is measured, three have a threshold.
        assert measures == [False, False, False, True, False, False, False, True]


class Fails(torch.nn.Module):
    fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise ValueError("fails")
        return x


@pytest.mark.usefixtures("clock")
def test_a_micro_batch_that_fails_takes_no_other_with_it() -> None:
    model = torch.nn.Sequential(model_of(), Fails())
    with around(
        wagma.AllreduceSGD(COMM), model, 4, 99.0, correction="stochastic", preempt=True
    ) as opt:
        opt.zero_grad()
        for number in opt.micro_batches(range(4)):
            model[1].fails = number == 2
            try:
                with opt.micro_batch():
                    loss_of(model, sample(0, RANK, number)).backward()
            except ValueError:
                pass
        other = torch.nn.Sequential(model_of(), Fails())
        for number in (0, 1, 3):
            loss_of(other, sample(0, RANK, number)).backward()
        for one, same in zip(model.parameters(), other.parameters(), strict=True):
            assert one.grad is not None
            assert same.grad is not None
            assert torch.equal(one.grad, same.grad)
        opt.step()
        assert opt.outcome is not None
        assert opt.outcome.weight == 3 * SIZE


def test_parameters_that_are_added_are_ended_with_the_others(clock: Clock) -> None:
    model = torch.nn.Sequential(model_of(), torch.nn.Identity())
    extra = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    with around(
        wagma.AllreduceSGD(COMM), model, 3, 2.5, correction="stochastic", preempt=True
    ) as opt:
        opt.add_param_group({"params": [extra]})
        opt.zero_grad()
        for number in opt.micro_batches(range(3)):
            with opt.micro_batch():
                extra.sum().backward()
                clock.now += 2.0
                model(sample(0, RANK, number))
        assert extra.grad is not None
        assert extra.grad.tolist() == [1.0, 1.0], "of the first one alone"
        opt.step()


def test_one_slow_micro_batch_is_no_short_threshold(clock: Clock, caplog: Any) -> None:
    model = model_of()
    with made(model, threshold=np.float32(3.0)) as opt:
        for times in (0.5, 0.5, 5.0):
            opt.zero_grad()
            for batch in opt.micro_batches([sample(0, RANK, m) for m in range(MOST)]):
                loss_of(model, batch).backward()
                clock.now += times
            opt.step()
    assert "below the fastest" not in caplog.text
