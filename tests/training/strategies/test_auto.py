"""Auto on real ranks: all switch at one version, and models are right before and after it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fake_gpu import FakeGPU
from tiny import COMM, RANK, SIZE, batch, build_model, on_all_ranks, step_on, values

import wagma
from wagma.profile import TrainingProfile
from wagma.training.clock import Clock
from wagma.training.strategies.times import LATEST, SKIPPED, StepTimes

pytestmark = pytest.mark.mpi

several = pytest.mark.skipif(SIZE == 1, reason="one rank waits for nobody")


class Given(StepTimes):
    """Times of each version, as if they had been measured: `slow` ones of one rank after another.

    Args:
        algorithm: whose times they are.
        slow: returns the seconds of the slow rank at a version; the others take 1.
    """

    def __init__(self, algorithm: wagma.Auto, slow: Callable[[int], float]) -> None:
        super().__init__(Clock(None))
        self._algorithm, self._slow = algorithm, slow

    def end(self, version: int) -> None:
        slow = self._slow(version)
        own = slow if version % SIZE == RANK else 1.0
        wait = 0.0 if self._algorithm.wait_avoiding else max(slow, 1.0) - own
        self.add(version, (int(1e6 * own), int(1e6 * wait), 1000))


def make(
    algorithm: wagma.Algorithm, slow: Callable[[int], float] | None = None
) -> tuple[torch.nn.Sequential, wagma.DistributedOptimizer]:
    if slow is not None:
        assert isinstance(algorithm, wagma.Auto)
        algorithm.times = Given(algorithm, slow)
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, wagma.DistributedOptimizer(inner, algorithm)


def train(model: torch.nn.Sequential, opt: wagma.DistributedOptimizer, until: int) -> list[Any]:
    """Train, and return version and group size at each switch."""
    seen: list[Any] = []
    size = opt.stats().get("group_size")
    while opt.version < until:
        step_on(model, opt, batch(opt.version, RANK))
        if opt.stats().get("group_size") != size:
            size = opt.stats()["group_size"]
            seen.append((opt.version, size))
    return seen


@several
@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_all_ranks_switch_and_return(transport: Any) -> None:
    algorithm = wagma.Auto(COMM, transport=transport)
    model, opt = make(algorithm, lambda version: 4.0 if version < 150 else 1.0)
    with opt:
        seen = train(model, opt, 100)
        assert seen == [(64, algorithm.active.group_size)]  # type: ignore[attr-defined]
        assert isinstance(algorithm.active, wagma.WAGMA)
        assert "now WAGMA" in repr(opt)
        assert opt.stats()["wait_avoiding"] == 1
        # The first review at a synchronisation is at 130, the first without slow ranks at 270.
        seen += train(model, opt, 300)
        assert COMM.allgather(seen) == [seen] * SIZE
        assert seen[1:] == [(270, 0)]
        assert isinstance(algorithm.active, wagma.AllreduceSGD)
        # Momentum was each rank's own.
        assert len(set(on_all_ranks(values(model)))) == 1
        # It waits twice as long for the next switch.
        algorithm.times = Given(algorithm, lambda _: 4.0)
        assert [version for version, _ in train(model, opt, 420)] == [270 + 128]
        assert opt.stats()["switches"] == 3


def test_it_is_allreduce_to_the_bit_without_slow_ranks() -> None:
    models = []
    for algorithm, slow in ((wagma.Auto(COMM), lambda _: 1.0), (wagma.AllreduceSGD(COMM), None)):
        model, opt = make(algorithm, slow)
        with opt:
            assert train(model, opt, 140) == []
        models.append(values(model))
    assert torch.equal(*models)
    assert len(set(on_all_ranks(models[0]))) == 1


@several
def test_it_resumes_as_what_it_was() -> None:
    model, opt = make(wagma.Auto(COMM), lambda _: 4.0)
    with opt:
        synchronous = opt.state_dict()
        train(model, opt, 95)
        averaging = opt.state_dict()
    algorithm = wagma.Auto(COMM)
    model, opt = make(algorithm, lambda _: 4.0)
    with opt:
        train(model, opt, 5)
        opt.synchronize()
        opt.load_state_dict(averaging)
        assert isinstance(algorithm.active, wagma.WAGMA)
        assert opt.version == 95
        # The next review is that of the saved training, and synchronisations are where they were.
        assert opt.state_dict()["wagma"]["state"] == averaging["wagma"]["state"]
        assert train(model, opt, 135) == []
        opt.synchronize()
        opt.load_state_dict(synchronous)
        assert isinstance(algorithm.active, wagma.AllreduceSGD)
        assert [version for version, _ in train(model, opt, 70)] == [64]


@several
def test_averages_before_steps_keep_it_synchronous() -> None:
    model, opt = make(wagma.Auto(COMM), lambda _: 4.0)
    with opt:
        for version in range(70):
            opt.zero_grad()
            model(batch(version, RANK)).sum().backward()
            opt.clip_grad_norm_(1.0)
            opt.step()
        assert opt.stats()["switches"] == 0


@several
def test_a_rank_without_data_holds_nobody_up() -> None:
    model, opt = make(wagma.Auto(COMM), lambda _: 4.0)
    with opt, opt.join(90 if RANK else 50):
        train(model, opt, 90 if RANK else 50)
    assert opt.version == 90


@several
def test_a_rank_that_has_left_holds_nobody_up() -> None:
    model, opt = make(wagma.Auto(COMM), lambda version: 4.0 if version <= 64 else 1.0)
    assert [version for version, _ in train(model, opt, 100)] == [64]
    if RANK:  # with rank 0 they would switch back at 130
        assert train(model, opt, 140) == []
    assert opt.version == (140 if RANK else 100)
    opt.close()


def profile(ranks: int, slow: float) -> TrainingProfile:
    """Return one of 40 steps in which one rank after the other is slow."""
    compute = np.ones((ranks, 40))
    compute[np.arange(40) % ranks, np.arange(40)] = slow
    nothing = np.zeros_like(compute)
    return TrainingProfile(
        input=nothing,
        compute=compute,
        wait=compute.max(axis=0) - compute,
        communication=nothing + 0.01,
        hosts=("one",) * ranks,
        micro_batches=None,
        model_bytes=100,
        communication_sizes={},
        method=None,
        hook_seconds=np.zeros(ranks),
    )


@several
def test_a_profile_makes_the_first_choice() -> None:
    with make(wagma.Auto(COMM, profile(SIZE, 4.0)))[1] as opt:
        assert isinstance(opt.algorithm, wagma.Auto)
        assert isinstance(opt.algorithm.active, wagma.WAGMA)
        assert opt.version == 0
    with make(wagma.Auto(COMM, profile(SIZE, 1.0)))[1] as opt:
        assert opt.stats()["group_size"] == 0
    with pytest.raises(ValueError, match=f"profile is of {SIZE + 1} ranks, and {SIZE} train"):
        make(wagma.Auto(COMM, profile(SIZE + 1, 4.0)))
    with pytest.raises(
        wagma.collectives.WagmaError, match=r"No such file or directory: /none\.json"
    ):
        make(wagma.Auto(COMM, "/none.json"))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_step_times_tell_computing_waiting_and_communication(
    on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a GPU, too, where the program is ahead."""
    gpu = FakeGPU(monkeypatch)
    times = StepTimes(Clock(None, gpu.record if on_gpu else None))
    take = gpu.queue if on_gpu else gpu.sleep

    class Averages:
        outcome: Any = None

    def average() -> None:
        take(0.5)
        averages.outcome = type("Outcome", (), {"waited": 0.2})()

    averages: Any = Averages()
    for version in range(SKIPPED + 2):
        take(2.0)
        times.call(average, averages)
        times.call(lambda: None, averages)
        times.end(version)
    if on_gpu:
        assert gpu.now < gpu.done, "nothing waits for the GPU"
    assert times.steps == dict.fromkeys((SKIPPED, SKIPPED + 1), (2000000, 200000, 300000))
    times.pause()
    take(100)
    times.end(SKIPPED + 2)
    assert len(times.steps) == 2
    for version in range(100, 100 + LATEST):
        times.end(version)
    assert [*times.steps] == [*range(100, 100 + LATEST)]


@several
@pytest.mark.long
def test_measured_times_switch_and_return() -> None:
    """Ranks that are really slow, and then are not.

    Steps are long, so that what a busy machine adds to them decides nothing.
    """
    algorithm = wagma.Auto(COMM, gain=0.6, review_period=32)
    model, opt = make(algorithm)

    def until(averaging: bool, usual: float, slow: float) -> int:
        for _ in range(400):
            time.sleep(slow if opt.version % SIZE == RANK else usual)
            step_on(model, opt, batch(opt.version, RANK))
            if opt.version % 10 == 0 and algorithm.wait_avoiding == averaging:
                break
        assert algorithm.wait_avoiding == averaging
        return opt.version

    with opt:
        assert len(set(COMM.allgather(until(True, 0.01, 0.2)))) == 1
        assert len(set(COMM.allgather(until(False, 0.1, 0.1)))) == 1
