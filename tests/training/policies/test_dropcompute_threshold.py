"""DropCompute: all ranks choose one threshold, and make up for what it drops."""

import copy
import math
from typing import Any

import numpy as np
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

import wagma
from wagma.theory.dropcompute import choose_threshold

pytestmark = [pytest.mark.mpi, pytest.mark.counts_ranks]


def test_the_threshold_is_that_of_algorithm_2(clock: Clock, caplog: Any) -> None:
    """All ranks choose what `choose_threshold` does of all times."""
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    model = model_of()
    steps, comm = 5, 0.25
    times = np.array([
        [[seconds(i, n, m) for m in range(MOST)] for n in range(SIZE)] for i in range(steps)
    ])  # fmt: skip
    choice = choose_threshold(times, np.full(steps, comm), preempt=False)
    assert 1 < choice.speedup < math.inf
    assert choice.threshold < math.inf
    with (
        caplog.at_level("INFO"),
        made(model, calibration_steps=steps, compensation="extra_steps") as opt,
    ):
        policy = opt._policy
        assert isinstance(policy, wagma.DropCompute)
        opt.register_step_pre_hook(lambda *_: setattr(clock, "now", clock.now + comm))
        for step in range(steps):
            assert policy.threshold == math.inf
            assert opt.steps_to_do(20) == 20
            assert compute(opt, model, clock, step) == MOST
            opt.step()
        assert policy.threshold == pytest.approx(choice.threshold, rel=1e-9)
        found = opt.stats()
        assert found["expected_speedup"] == pytest.approx(choice.speedup, rel=1e-9)
        assert found["expected_drop_rate"] == pytest.approx(choice.drop_rate, rel=1e-9)
        extra = (20 - steps) * (1 / (1 - choice.drop_rate) - 1)
        assert opt.steps_to_do(20) == 20 + math.ceil(extra - 1e-9)
        for step in range(steps, 3 * steps):
            assert compute(opt, model, clock, step) == finished(step, RANK, policy.threshold)
            opt.step()
        assert opt.stats()["measured_speedup"] > 0
    said = [r.getMessage() for r in caplog.records if "expected speed-up" in r.getMessage()]
    assert len(said) == (RANK == 0)


def test_it_stays_off_where_nothing_gains(clock: Clock, caplog: Any) -> None:
    model = model_of()
    with caplog.at_level("INFO"), made(model, calibration_steps=2) as opt:
        for step in range(4):
            opt.zero_grad()
            for batch in opt.micro_batches([sample(step, RANK, m) for m in range(MOST)]):
                loss_of(model, batch).backward()
                clock.now += 1.0
            opt.step()
        assert opt.stats()["threshold"] == math.inf
        assert opt.stats()["drop_rate"] == 0
    wanted = "stays off" if SIZE > 1 else "nothing to wait for"
    assert any(wanted in r.getMessage() for r in caplog.records) == (RANK == 0)


def test_the_learning_rate_is_smaller_by_what_is_dropped(clock: Clock) -> None:
    """Where the expected drop rate is known; a schedule does not see it."""
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    model = model_of()
    with made(model, lr=1.0, correction="constant", threshold=3.0, calibration_steps=2) as opt:
        for step in range(4):
            before = copy.deepcopy(model)
            count = compute(opt, model, clock, step)
            opt.step()
            counts = COMM.allgather(count)
            total = sum(
                gradient(before, [sample(step, rank, m) for m in range(counts[rank])])
                for rank in range(SIZE)
            )
            rate = 1.0 if step < 2 else 1 - opt.stats()["expected_drop_rate"]
            assert step < 2 or 0 < rate < 1
            wanted = flat(before) - rate * total / (SIZE * MOST)
            torch.testing.assert_close(flat(model), wanted, rtol=1e-12, atol=1e-12)
            assert opt.param_groups[0]["lr"] == 1.0


def test_a_larger_batch(clock: Clock) -> None:
    if SIZE == 1:
        pytest.skip("one rank waits for nobody")
    model = model_of()
    with made(model, compensation="larger_batch", threshold=3.0, calibration_steps=2) as opt:
        for step in range(2):
            compute(opt, model, clock, step)
            opt.step()
        most = opt.micro_batches_per_step
        rate = opt.stats()["expected_drop_rate"]
        assert most == math.ceil(MOST / (1 - rate) - 1e-9) > MOST
        assert opt.stats()["threshold"] == pytest.approx(3.0 * most / MOST)
        assert compute(opt, model, clock, 2, 20) == finished(
            2, RANK, opt.stats()["threshold"], most
        )


def test_a_training_goes_on_to_the_bit(clock: Clock) -> None:
    """With its threshold, and in the midst of a calibration."""

    def run(opt: Any, model: torch.nn.Module, first: int, last: int) -> None:
        for step in range(first, last):
            compute(opt, model, clock, step)
            opt.step()

    arguments: dict[str, Any] = {"calibration_steps": 4, "recalibrate": 6, "correction": "none"}
    model = model_of()
    with made(model, **arguments) as opt:
        run(opt, model, 0, 14)
        whole, threshold = flat(model), opt.stats()["threshold"]
    for half in (2, 7, 12):
        model = model_of()
        with made(model, **arguments) as opt:
            run(opt, model, 0, half)
            saved = copy.deepcopy((opt.state_dict(), model.state_dict()))
        model = model_of()
        with made(model, **arguments) as opt:
            opt.load_state_dict(saved[0])
            model.load_state_dict(saved[1])
            run(opt, model, half, 14)
            assert torch.equal(flat(model), whole)
            assert opt.stats()["threshold"] == threshold
