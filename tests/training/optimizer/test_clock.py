"""Times of a GPU, which is faked: when it has done what was queued, seen without waiting for it."""

import random

import pytest
from fake_gpu import FakeGPU, Recorded

from wagma.training.clock import Clock, Lead
from wagma.training.policies.draws import UNDER_WAY, Laps


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGPU:
    return FakeGPU(monkeypatch)


def test_a_moment_passes_when_the_work_before_it_is_done(gpu: FakeGPU) -> None:
    clock = Clock(None, gpu.record)
    gpu.queue(2.0)
    moment = clock.mark()
    gpu.queue(5.0)
    assert not moment.passed
    assert moment.age == 0
    assert gpu.now == 100, "marking and looking wait for nothing"
    gpu.sleep(3.0)
    assert moment.passed
    assert moment.age == pytest.approx(1.0)
    assert moment.seconds == pytest.approx(102.0)
    assert clock.mark().seconds == pytest.approx(107.0)
    assert gpu.now == pytest.approx(107.0), "asked for its time it waits, and no longer"


def test_on_the_host_moments_pass_at_once(gpu: FakeGPU) -> None:
    gpu.queue(2.0)
    moment = Clock(None).mark()
    assert moment.passed
    assert moment.seconds == 100


def test_clocks_that_drift_stay_together(gpu: FakeGPU, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose seconds are longer or shorter, and a program that is ahead or waits."""
    rng = random.Random(1)
    for rate in (0.9, 1.1):
        monkeypatch.setattr(
            Recorded, "elapsed_time", lambda one, other, rate=rate: 1e3 * rate * (other.at - one.at)
        )
        clock = Clock(None, gpu.record)
        for _ in range(100):
            gpu.queue(rng.choice([0.0, 1.0]))
            mark, due = clock.mark(), max(gpu.now, gpu.done)
            gpu.sleep(rng.choice([0.0, 0.5, 2.0]))
            assert abs(mark.seconds - due) < 1.0


def test_laps_are_those_of_the_gpu(gpu: FakeGPU) -> None:
    laps = Laps(Clock(None, gpu.record))
    gpu.queue(1.0)
    laps.lap()
    assert laps.elapsed() == 0, "nothing is known"
    assert gpu.now == 100
    gpu.queue(3.0)
    laps.lap()
    assert laps.elapsed() == pytest.approx(2.0), "as if the second was like the first"
    assert gpu.now == pytest.approx(101.0)
    gpu.sleep(3.5)
    assert laps.elapsed() == pytest.approx(4.0)
    gpu.sleep(1.0)
    gpu.queue(0.25)
    laps.lap()
    assert laps.times == pytest.approx([1.0, 3.0, 1.75]), "the GPU was idle before the third"


@pytest.mark.parametrize("ahead", [1.0, 0.0])
def test_the_program_is_one_lap_ahead(gpu: FakeGPU, ahead: float) -> None:
    laps = Laps(Clock(None, gpu.record))
    for number in range(1, 20):
        gpu.queue(ahead)
        gpu.sleep(1.0 - ahead)
        laps.lap()
        laps.elapsed()
        assert gpu.done - gpu.now <= UNDER_WAY * ahead + 1e-9
        assert gpu.now >= 100 + number - UNDER_WAY


def test_a_lead_is_bounded(gpu: FakeGPU) -> None:
    lead = Lead(Clock(None, gpu.record), 3)
    for number in range(1, 10):
        gpu.queue(1.0)
        lead.keep()
        assert gpu.now == pytest.approx(100 + max(0, number - 3))
