"""DropCompute: gradients are those of what is finished; all ranks choose one threshold."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.collectives import MismatchError
from wagma.theory.dropcompute import choose_threshold
from wagma.training.policies import draws, dropcompute, preemption

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
FEATURES, MOST = 3, 4

torch.set_num_threads(1)


class Clock:
    """A clock that goes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (draws, dropcompute):
        monkeypatch.setattr(module, "time", made)
    return made


def model_of(dtype: torch.dtype = torch.float64) -> torch.nn.Linear:
    model = torch.nn.Linear(FEATURES, 2, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    return model


def sample(step: int, rank: int, micro: int, count: int = 2) -> torch.Tensor:
    rng = np.random.default_rng([step, rank, micro])
    return torch.from_numpy(rng.normal(size=(count, FEATURES)))


def seconds(step: int, rank: int, micro: int) -> float:
    """What a micro-batch takes: of one rank per step much longer."""
    slow = (step + rank) % SIZE == 0
    return 1.0 + 0.125 * ((step + 3 * rank + 5 * micro) % 4) + 3.0 * slow * (micro % 2)


def finished(step: int, rank: int, threshold: float, most: int = MOST) -> int:
    """The micro-batches until the threshold: the one in progress then is finished."""
    ends = np.cumsum([seconds(step, rank, m) for m in range(most)])
    return int(min(most, 1 + (ends < threshold).sum()))


def loss_of(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return (model(inputs) - inputs.sum(1, keepdim=True)).square().sum(1).mean()


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def gradient(model: torch.nn.Module, batches: list[torch.Tensor]) -> torch.Tensor:
    """The sum of the micro-batches' gradients."""
    other = copy.deepcopy(model)
    other.zero_grad()
    for batch in batches:
        loss_of(other, batch).backward()
    return torch.cat([
        (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in other.parameters()
    ])  # fmt: skip


def made(model: torch.nn.Module, lr: float = 0.1, **arguments: Any) -> wagma.DistributedOptimizer:
    policy = wagma.DropCompute(wagma.AllreduceSGD(COMM), **{"micro_batches": MOST, **arguments})
    return wagma.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), policy)


def compute(opt: Any, model: torch.nn.Module, clock: Clock, step: int, most: int = MOST) -> int:
    opt.zero_grad()
    count = 0
    for micro, batch in enumerate(opt.micro_batches([sample(step, RANK, m) for m in range(most)])):
        loss_of(model, batch).backward()
        clock.now += seconds(step, RANK, micro)
        count += 1
    return count


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
    wanted = "stays off" if SIZE > 1 else "waits for nobody"
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


def test_every_sample_once_per_epoch(clock: Clock) -> None:
    """Of uneven ranks, one of which has nothing at all; lists and an iterator."""
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


class Slow(torch.nn.Module):
    """Takes a second in the forward pass, or in the backward pass."""

    def __init__(self, clock: Clock, *, backward: bool = False) -> None:
        super().__init__()
        self.clock = clock
        self.backward = backward

    def wait(self, *_: object) -> None:
        self.clock.now += 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.backward:
            self.wait()
        elif x.requires_grad:
            x.register_hook(self.wait)
        return x


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("correction", ["none", "stochastic"])
def test_preempted_micro_batches_have_never_begun(
    correction: Any, where: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are those of the finished to the bit; buffers and random numbers, too."""
    monkeypatch.setattr(preemption, "time", clock)

    def network() -> torch.nn.Sequential:
        torch.manual_seed(3)
        return torch.nn.Sequential(
            *(torch.nn.Linear(FEATURES, 4), torch.nn.BatchNorm1d(4), Slow(clock, backward=True)),
            *(torch.nn.Dropout(0.5), Slow(clock), torch.nn.Linear(4, 2), Slow(clock)),
            torch.nn.Identity(),
        ).double()

    model, other = network(), network()
    count = RANK % 3  # of 3 seconds each: rank 0 finishes none
    threshold = 3.0 * count + {"forward": 0.5, "backward": 2.5}[where]
    policy = wagma.DropCompute(
        wagma.AllreduceSGD(COMM), MOST, 9.0, correction=correction, preempt=True
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, policy, model=model) as opt:
        policy.threshold = threshold
        opt.zero_grad()
        torch.manual_seed(RANK)
        for batch in opt.micro_batches([sample(0, RANK, m) for m in range(MOST)]):
            with opt.micro_batch():
                loss_of(model, batch).backward()
        drawn = torch.rand(3)
        torch.manual_seed(RANK)
        for micro in range(count):
            loss_of(other, sample(0, RANK, micro)).backward()
        for one, same in zip(model.parameters(), other.parameters(), strict=True):
            assert (one.grad is None) == (same.grad is None) == (count == 0)
            assert one.grad is None or torch.equal(one.grad, same.grad)  # type: ignore[arg-type]
        assert all(map(torch.equal, model.buffers(), other.buffers()))
        torch.manual_seed(RANK)
        for micro in range(count):
            with torch.no_grad():
                other(sample(0, RANK, micro))
        assert torch.equal(torch.rand(3), drawn)
        opt.step()
        counts = COMM.allgather(count)
        assert opt.outcome is not None
        wanted = sum(counts) if correction == "stochastic" else sum(c > 0 for c in counts)
        assert opt.outcome.weight == wanted
        assert opt.stats()["drop_rate"] == (MOST - count) / MOST
        opt.zero_grad()
        with pytest.raises(RuntimeError, match="needs the loop's body in a block"):
            for _ in opt.micro_batches([1, 2]):
                pass
    assert not model[0]._forward_pre_hooks


def test_a_preempted_micro_batch_comes_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "time", clock)
    model = torch.nn.Sequential(model_of(), Slow(clock), torch.nn.Identity())
    policy = wagma.DropCompute(
        wagma.AllreduceSGD(COMM), 3, 2.0, preempt=True, compensation="resample",
        correction="stochastic",
    )  # fmt: skip
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, policy, model=model) as opt:
        numbers, done = iter(range(5)), []
        while not opt.epoch_done:
            opt.zero_grad()
            for number in opt.micro_batches(numbers):
                with opt.micro_batch():
                    loss_of(model, sample(0, RANK, number)).backward()
                    done.append(number)
            opt.step()
            assert opt.version < 20
        assert done == [0, 1, 2, 3, 4]


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
            opt.zero_grad()
            for batch in opt.micro_batches([sample(opt.version, RANK, 0)]):
                loss_of(model, batch).backward()
                clock.now += 2.0 if RANK == 0 else 0.5
            opt.step()
            made_steps += 1
            if opt.version % period == 0:
                assert len(set(COMM.allgather(flat(model).numpy().tobytes()))) == 1
        if algorithm == "LocalSGD":
            assert made_steps == (4 if RANK == 0 else 8)
            assert opt.stats()["drop_rate"] == (0.5 if RANK == 0 else 0)
        elif RANK == 0:  # it may have been fast-forwarded, too
            assert made_steps <= 4
            assert opt.stats()["drop_rate"] > 0


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


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"micro_batches": 0}, "micro_batches=0 must be 1 or more"),
    "half": ({"micro_batches": 1.5}, r"micro_batches=1\.5 must be an int or None"),
    "never": ({"threshold": 0}, "threshold=0 must be 'auto', or seconds"),
    "nan": ({"threshold": math.nan}, "threshold=nan must be"),
    "word": ({"threshold": "often"}, "threshold='often' must be"),
    "steps": ({"calibration_steps": 0}, "calibration_steps=0 must be 1 or more"),
    "name": ({"correction": "some"}, "correction='some' must be 'none' or 'constant' or"),
    "extra": ({"compensation": "much"}, "compensation='much' must be"),
    "again": ({"recalibrate": 10}, "recalibrate=10 needs .* more versions than"),
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
    """Of one rank: every rank says so."""
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
        with pytest.raises(RuntimeError, match=r"micro_batches\(\) needs a policy"):
            opt.micro_batches([])
        assert opt.steps_to_do(7) == 7
