"""DropCompute: gradients are those of what is finished, and bad use is refused."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from dropping import (
    COMM,
    MOST,
    RANK,
    SIZE,
    Clock,
    compute,
    finished,
    flat,
    gradient,
    loss_of,
    made,
    model_of,
    sample,
    seconds,
)
from fake_gpu import FakeGPU

import wagma
from wagma.collectives import MismatchError
from wagma.training import clock as device_clock
from wagma.training.policies import dropcompute

pytestmark = [pytest.mark.mpi, pytest.mark.counts_ranks]


@pytest.mark.parametrize("correction", ["none", "constant"])
def test_without_drops_it_is_accumulation(correction: str, clock: Clock) -> None:
    """To the bit: that of plain AllreduceSGD with the sums times 1/M."""
    model, other = model_of(torch.float32), model_of(torch.float32)
    plain = torch.optim.SGD(other.parameters(), lr=0.1)
    with (
        made(model, correction=correction, threshold=math.inf) as opt,
        wagma.DistributedOptimizer(plain, wagma.AllreduceSGD(COMM)) as same,
    ):
        for step in range(14):
            opt.zero_grad()
            same.zero_grad()
            inputs = [sample(step, RANK, m).float() for m in range(MOST)]
            for batch in opt.micro_batches(inputs):
                loss_of(model, batch).backward()
                clock.now += 1.0
            opt.step()
            for batch in inputs:
                loss_of(other, batch).backward()
            for parameter in other.parameters():
                assert parameter.grad is not None
                parameter.grad = parameter.grad * (1 / MOST)
            same.step()
            assert torch.equal(flat(model), flat(other))
        assert opt.stats()["drop_rate"] == 0


@pytest.mark.parametrize("correction", ["none", "stochastic"])
def test_gradients_are_those_of_the_finished(correction: str, clock: Clock) -> None:
    model = model_of()
    threshold, dropped = 3.0, 0
    with made(model, lr=1.0, correction=correction, threshold=threshold) as opt:
        for step in range(6):
            before = copy.deepcopy(model)
            counts = [finished(step, rank, threshold) for rank in range(SIZE)]
            assert compute(opt, model, clock, step) == counts[RANK]
            kept = [p.grad for p in model.parameters()]
            copies = [g.clone() for g in kept if g is not None]
            opt.step()
            assert all(map(torch.equal, kept, copies)), "a gradient that is kept stays"
            total = sum(
                gradient(before, [sample(step, rank, m) for m in range(counts[rank])])
                for rank in range(SIZE)
            )
            by = SIZE * MOST if correction == "none" else sum(counts)
            wanted = flat(before) - total / by
            torch.testing.assert_close(flat(model), wanted, rtol=1e-12, atol=1e-12)
            dropped += MOST - counts[RANK]
        assert opt.stats()["drop_rate"] == pytest.approx(dropped / (6 * MOST))


def test_on_a_gpu_the_loop_is_ahead_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits neither for the latest micro-batch, nor at the step, and drops as on the host."""
    gpu = FakeGPU(monkeypatch)
    monkeypatch.setattr(dropcompute, "time", device_clock.time)
    monkeypatch.setattr(dropcompute, "Clock", lambda _: device_clock.Clock(None, gpu.record))
    model, most = model_of(), 8
    lap = 1.0 + RANK % 2
    with made(model, micro_batches=most, threshold=6.0, correction="stochastic") as opt:
        for _ in range(3):
            before = gpu.done
            opt.zero_grad()
            for batch in opt.micro_batches([sample(0, RANK, micro) for micro in range(most)]):
                assert gpu.done - gpu.now <= lap, "one micro-batch under way, no more"
                loss_of(model, batch).backward()
                gpu.queue(lap)
            count = 6 if lap == 1.0 else 3
            assert gpu.done == before + count * lap
            assert gpu.done - gpu.now == lap
            opt.step()
            assert opt.outcome is not None
            assert opt.outcome.weight == sum(3 if rank % 2 else 6 for rank in range(SIZE))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_times_of_a_calibration(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the micro-batches, and of the averaging alone."""
    gpu = FakeGPU(monkeypatch)
    take = gpu.queue if on_gpu else gpu.sleep
    record = gpu.record if on_gpu else None
    monkeypatch.setattr(dropcompute, "time", device_clock.time)
    monkeypatch.setattr(dropcompute, "Clock", lambda _: device_clock.Clock(None, record))
    model = model_of()
    noted: list[Any] = []
    with made(model, threshold="auto", calibration_steps=2) as opt:
        policy = opt._policy
        assert isinstance(policy, wagma.DropCompute)
        monkeypatch.setattr(policy._in_force, "note", lambda *parts: noted.append(parts))

        def after(*_: object) -> None:  # the averaging ends when all work before it is done
            gpu.now = gpu.done = max(gpu.now, gpu.done) + 0.5

        opt.register_step_pre_hook(after)
        opt.zero_grad()
        for micro, batch in enumerate(opt.micro_batches([sample(0, RANK, m) for m in range(MOST)])):
            loss_of(model, batch).backward()
            take(1.0 + micro)
        opt.step()
    ((step, times, averaging),) = noted
    assert step == 0
    assert times == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert averaging == pytest.approx(0.5)


def test_averages_per_token(clock: Clock) -> None:
    """Losses are sums over tokens; the average is the mean over all that were computed."""
    model = model_of()
    with made(model, lr=1.0, correction="stochastic", threshold=2.5) as opt:
        for step in range(4):
            before = copy.deepcopy(model)
            opt.zero_grad()
            mine = [sample(step, RANK, m, count=1 + (m + RANK) % 3) for m in range(MOST)]
            done = []
            for micro, batch in enumerate(opt.micro_batches(mine, weight=len)):
                (loss_of(model, batch) * len(batch)).backward()
                clock.now += seconds(step, RANK, micro)
                done.append(batch)
            opt.step()
            tokens = torch.cat([torch.cat(part) for part in COMM.allgather(done)])
            assert opt.outcome is not None
            assert opt.outcome.weight == len(tokens)
            wanted = flat(before) - gradient(before, [tokens])
            torch.testing.assert_close(flat(model), wanted, rtol=1e-12, atol=1e-12)


def test_anytime_minibatch(clock: Clock) -> None:
    model = model_of()
    with made(model, micro_batches=None, threshold=3.0, correction="stochastic") as opt:
        assert opt.micro_batches_per_step is None
        batches = (sample(0, RANK, m) for m in range(100))
        opt.zero_grad()
        for batch in opt.micro_batches(batches):
            loss_of(model, batch).backward()
            clock.now += 0.5 * (1 + RANK % 2)
        opt.step()
        assert opt.outcome is not None
        assert opt.outcome.weight == sum(3 if rank % 2 else 6 for rank in range(SIZE))
        assert len(list(batches)) == 100 - (3 if RANK % 2 else 6), "only what is computed is drawn"
        assert opt.stats()["drop_rate"] == 0


def test_every_sample_once_per_epoch(clock: Clock) -> None:
    """Ranks have unequally many, one nothing at all; in lists, and in an iterator."""
    model = model_of()
    numbers = [f"{RANK}-{i}" for i in range(0 if RANK == 1 else 11 + 3 * RANK)]
    with made(model, compensation="resample", correction="stochastic", threshold=2.5) as opt:
        for epoch in range(2):
            lists: Iterator[Any] = iter([numbers[i : i + 5] for i in range(0, len(numbers), 5)])
            seen, steps = [], 0
            whole = iter(numbers)
            while True:
                opt.zero_grad()
                handed = whole if epoch else next(lists, [])
                for micro, number in enumerate(opt.micro_batches(handed)):
                    seen.append(number)
                    loss_of(model, sample(steps, RANK, micro)).backward()
                    clock.now += seconds(steps, RANK, micro)
                opt.step()
                steps += 1
                if opt.epoch_done:
                    break
                assert steps < 100
            assert sorted(seen) == sorted(numbers)
            assert len(set(COMM.allgather(opt.version))) == 1
    assert len(set(COMM.allgather(flat(model).numpy().tobytes()))) == 1


@pytest.mark.usefixtures("clock")
def test_a_loop_that_is_left_counts_what_is_finished() -> None:
    model = model_of()
    for after in (False, True):
        with made(model, correction="stochastic", threshold=99.0) as opt:
            opt.zero_grad()
            for micro, batch in enumerate(
                opt.micro_batches([sample(0, RANK, m) for m in range(MOST)])
            ):
                if micro == 2 and not after:
                    break
                loss_of(model, batch).backward()
                if micro == 2:
                    break
            opt.step()
            assert opt.outcome is not None
            assert opt.outcome.weight == SIZE * (2 + after)


@pytest.mark.parametrize("algorithm", ["LocalSGD", "WAGMA"])
def test_a_period_that_takes_too_long_ends(algorithm: str, clock: Clock) -> None:
    """The rest of its local steps is left out, and all average at its end."""
    period = 4
    around: Callable[[], wagma.Algorithm] = (
        (lambda: wagma.LocalSGD(COMM, period))
        if algorithm == "LocalSGD"
        else (lambda: wagma.WAGMA(COMM, sync_period=period, missed="fast-forward"))
    )
    model = model_of()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    policy = wagma.DropCompute(around(), 1, 2.5)
    with wagma.DistributedOptimizer(inner, policy) as opt:
        made_steps = 0
        while opt.version < 2 * period:
            # No rank is ahead at a period's first two versions, and rank 0 makes a step in both:
            # a fast-forward over the rest would leave nothing to drop.
            if opt.version % period < 2:
                COMM.Barrier()
            opt.zero_grad()
            for batch in opt.micro_batches([sample(opt.version, RANK, 0)]):
                loss_of(model, batch).backward()
                clock.now += 2.0 if RANK == 0 else 0.5
            opt.step()
            made_steps += 1
            if opt.version % period == 0:
                assert len(set(COMM.allgather(flat(model).numpy().tobytes()))) == 1
        rate = opt.stats()["drop_rate"]
        if RANK == 0:
            assert made_steps == 4
            # WAGMA may fast-forward rank 0 from its second step to the synchronisation.
            assert rate == 0.5 or (algorithm == "WAGMA" and 1 / 3 <= rate < 0.5)
        else:
            assert made_steps == 8 or (algorithm == "WAGMA" and made_steps < 8)
            assert rate == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"micro_batches": 0}, "micro_batches=0 must be 1 or more"),
    "half": ({"micro_batches": 1.5}, r"micro_batches=1\.5 must be an int or None"),
    "never": ({"threshold": 0}, "threshold=0 must be 'auto', or seconds"),
    "nan": ({"threshold": math.nan}, "threshold=nan must be"),
    "word": ({"threshold": "often"}, "threshold='often' must be"),
    "steps": ({"calibration_steps": 0}, "calibration_steps=0 must be 1 or more"),
    "name": ({"correction": "some"}, "correction='some' must be 'none' or 'constant' or"),
    "extra": ({"compensation": "much"}, "compensation='much' must be"),
    "again": ({"recalibrate": 10}, "recalibrate=10 needs .* more than the 10 versions"),
    "model": ({"preempt": True}, "preempt=True needs the model"),
    "anytime": ({"micro_batches": None}, "micro_batches=None needs a threshold in seconds"),
    "divided": (
        {"micro_batches": None, "threshold": 1.0},
        "micro_batches=None needs correction='stochastic'",
    ),
    "larger": (
        {
            "micro_batches": None,
            "threshold": 1.0,
            "correction": "stochastic",
            "compensation": "larger_batch",
        },
        "micro_batches=None drops nothing",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case: str) -> None:
    """One rank has them, and every rank says so."""
    arguments, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        made(model_of(), **(arguments if RANK == SIZE - 1 else {}))


def test_wrong_use(clock: Clock, caplog: Any) -> None:
    model = model_of()
    if SIZE > 1:
        with pytest.raises(MismatchError, match="micro_batches"):
            made(model, micro_batches=MOST + (RANK == 0))
    for algorithm, message in (
        (wagma.DPSGD(COMM), "do not all average together"),
        (wagma.WAGMA(COMM), "needs WAGMA"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            wagma.DistributedOptimizer(
                torch.optim.SGD(model.parameters()), wagma.DropCompute(algorithm, MOST)
            )
    with pytest.raises(TypeError, match="algorithm is a int"):
        wagma.DropCompute(3, MOST)  # type: ignore[arg-type]
    with made(model, threshold=0.5) as opt:
        with pytest.raises(RuntimeError, match=r"step\(\) without micro_batches\(\)"):
            opt.step()
        with pytest.raises(TypeError, match="batches is a int"):
            opt.micro_batches(3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="needs correction='stochastic'"):
            opt.micro_batches([], weight=len)
        assert compute(opt, model, clock, 0) == 1
        opt.step()
        assert "threshold of 0.5 s is below the fastest micro-batch" in caplog.text
    with made(model, threshold=0.5, correction="stochastic") as opt:
        for weight in (-1, math.nan):
            with pytest.raises(ValueError, match="weight of a micro-batch is"):
                list(opt.micro_batches([1], weight=lambda _, w=weight: w))
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(plain, wagma.AllreduceSGD(COMM)) as opt:
        with pytest.raises(RuntimeError, match=r"micro_batches\(\) needs a compute policy"):
            opt.micro_batches([])
        assert opt.steps_to_do(7) == 7
