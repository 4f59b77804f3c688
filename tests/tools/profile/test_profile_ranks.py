"""wagma.Profile on ranks: one is slow, and the profile names it and why."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import blocks
from mpi4py import MPI
from tiny import COMM, RANK, SIZE, batch, build_model, loss_of
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

import wagma
from wagma.benchmarks.training.ddp import wrapped
from wagma.profile import TrainingProfile, load
from wagma.profile.contents import PARTS
from wagma.training import watching

pytestmark = pytest.mark.mpi

SLOW = 1
SLEEP_S = 0.02
STEPS = 25  # a busy machine may spoil some of them
WARMUP = 3
Sleep = Callable[[str], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that all ranks name alike."""
    return Path(COMM.bcast(str(tmp_path / "profile.json")))


def loader(sleep: Sleep) -> Iterator[torch.Tensor]:
    for step in range(STEPS):
        sleep("input")
        yield batch(step, RANK)


def model_of(sleep: Sleep) -> torch.nn.Module:
    model = build_model()
    model.register_forward_pre_hook(lambda *_: sleep("compute"))
    return model


# Each makes a training, and yields what trains `STEPS` steps of it.
Training = AbstractContextManager[Callable[[wagma.Profile], None]]


@contextmanager
def wagma_training(kind: type[Any], sleep: Sleep) -> Iterator[Callable[[wagma.Profile], None]]:
    class Sleeping(kind):  # type: ignore[misc]
        def before_step(self, loss: Any) -> Any:
            sleep("communication")
            return super().before_step(loss)

    Sleeping.__name__ = kind.__name__
    model = model_of(sleep)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    with wagma.DistributedOptimizer(inner, Sleeping(COMM), model=model) as opt:

        def train(profile: wagma.Profile) -> None:
            for inputs in profile.batches(loader(sleep)):
                opt.zero_grad()
                loss_of(model, inputs).backward()
                opt.step()

        yield train


@contextmanager
def ddp_training(sleep: Sleep) -> Iterator[Callable[[wagma.Profile], None]]:
    def hook(group: Any, bucket: torch.distributed.GradBucket) -> Future[torch.Tensor]:
        def unpack(future: Any) -> torch.Tensor:
            sleep("communication")
            value: torch.Tensor = future.value()
            return value

        return allreduce_hook(group, bucket).then(unpack)

    with wrapped(COMM, model_of(sleep), []) as model:
        model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def train(profile: wagma.Profile) -> None:
            for inputs in profile.batches(loader(sleep)):
                optimizer.zero_grad()
                loss_of(model, inputs).backward()
                optimizer.step()

        yield train


def train_mpi4py(sleep: Sleep, profile: wagma.Profile) -> None:
    gradients = np.zeros(55)
    for inputs in profile.batches(loader(sleep)):
        gradients[:] = inputs.numpy().sum()
        sleep("compute")
        with profile.communication(gradients.nbytes):
            COMM.Allreduce(MPI.IN_PLACE, gradients)
            sleep("communication")
        profile.step()


def train_torch_and_mpi4py(sleep: Sleep, named: bool, profile: wagma.Profile) -> None:
    model = model_of(sleep)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs in profile.batches(loader(sleep)):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        for parameter in model.parameters():
            gradient = parameter.grad.numpy()
            with profile.communication(gradient.nbytes) if named else nullcontext():
                COMM.Allreduce(MPI.IN_PLACE, gradient)
        sleep("communication")
        optimizer.step()


TRAININGS: dict[str, Callable[[Sleep], Training]] = {
    "AllreduceSGD": partial(wagma_training, wagma.AllreduceSGD),
    "WAGMA": partial(wagma_training, wagma.WAGMA),
    "DistributedDataParallel": ddp_training,
    "mpi4py": lambda sleep: nullcontext(partial(train_mpi4py, sleep)),
}


def recorded(path: Path, training: Callable[[wagma.Profile], None]) -> TrainingProfile:
    """Record a training."""
    with wagma.Profile(COMM, path, warmup=WARMUP) as profile:
        training(profile)
    return load(path)


def undisturbed(profile: TrainingProfile) -> TrainingProfile:
    """Leave out the steps in which a busy machine has stopped a rank."""
    own = profile.own
    calm = (own < np.median(own, axis=1, keepdims=True) + SLEEP_S).all(axis=0)
    times = {part: getattr(profile, part)[:, calm] for part in PARTS}
    passes = profile.micro_batches
    return replace(profile, **times, micro_batches=None if passes is None else passes[:, calm])


def nowhere(place: str) -> None:
    """Do not sleep."""


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", TRAININGS)
def test_slow_rank_and_cause_are_named(path: Path, method: str) -> None:
    """Rank 1 sleeps in each step, in one place of three in turn."""
    cause = ""

    def sleep(place: str) -> None:
        if place == cause and RANK == SLOW:
            time.sleep(SLEEP_S)

    with TRAININGS[method](sleep) as train:
        for cause in ("input", "compute", "communication"):
            profile = recorded(path, train)
            assert (profile.ranks, profile.steps) == (SIZE, STEPS - WARMUP)
            assert profile.method == (None if method == "mpi4py" else method)
            profile = undisturbed(profile)
            found = profile.diagnosis()
            assert (found.slow_rank, found.cause) == (SLOW, cause), profile.table()
            assert SLEEP_S / 2 < found.seconds < 3 * SLEEP_S, profile.table()
            if method != "WAGMA":  # whose ranks wait less
                waits = np.median(profile.wait, axis=1)  # a busy machine delays some steps
                assert waits[0] > SLEEP_S / 2 > waits[SLOW], profile.table()


def test_sizes_and_passes_of_a_training_with_wagma(path: Path) -> None:
    with wagma_training(wagma.AllreduceSGD, nowhere) as train:
        profile = recorded(path, train)
    shares = profile.hook_seconds / profile.durations.sum(axis=1)
    assert 0 < shares.min() < 0.3  # 0.003 on a machine that does nothing else
    assert profile.model_bytes == 37 * 8
    assert profile.micro_batches is not None
    assert profile.micro_batches.shape == (SIZE, STEPS - WARMUP, 1)
    assert (profile.micro_batches[:, :, 0] <= profile.compute).all()
    count, seconds = profile.communication_sizes[37 * 8]
    assert count == SIZE * (STEPS - WARMUP)
    assert seconds == pytest.approx(profile.communication.sum(), rel=1e-3)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("named", [True, False])
def test_own_allreduces_of_gradients_are_seen(path: Path, named: bool) -> None:
    def sleep(place: str) -> None:
        if place == "compute" and RANK == SLOW:
            time.sleep(SLEEP_S)

    profile = recorded(path, partial(train_torch_and_mpi4py, sleep, named))
    diagnosis = undisturbed(profile).diagnosis()
    assert (diagnosis.slow_rank, diagnosis.cause) == (SLOW, "compute"), profile.table()
    waits = np.median(profile.wait, axis=1)  # a busy machine delays some steps
    assert waits[0] > SLEEP_S / 2 > waits[SLOW], profile.table()
    sizes = {size: count for size, (count, _) in profile.communication_sizes.items()}
    steps = SIZE * (STEPS - WARMUP)
    each = {24 * 8: steps, 6 * 8: 2 * steps, 8: steps}
    assert sizes == (each if named else {37 * 8: steps})  # seen as one, before the step


@pytest.mark.mpi(min_size=2)
def test_clipped_and_accumulated_steps(path: Path) -> None:
    """Waits before the step are none of computing, and each backward pass is seen."""
    with wagma.Profile(COMM, path):
        model = build_model()
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM), model=model) as opt:
            for step in range(STEPS):
                opt.zero_grad()
                for part in range(3):
                    if RANK == SLOW:
                        time.sleep(SLEEP_S / 2 * part)
                    loss_of(model, batch(step, RANK)).backward()
                opt.clip_grad_norm_(1.0)
                opt.step()
    found = load(path)
    diagnosis = undisturbed(found).diagnosis()
    assert (diagnosis.slow_rank, diagnosis.cause) == (SLOW, "compute"), found.table()
    assert found.micro_batches is not None
    least = found.micro_batches.min(axis=1)  # a busy machine delays some steps
    assert least.shape == (SIZE, 3)
    slept = [SLEEP_S / 2 * part for part in range(3)]
    assert least[SLOW] == pytest.approx(slept, abs=SLEEP_S / 4)
    assert np.median(found.wait[0]) > SLEEP_S


@pytest.mark.mpi(min_size=2)
def test_ddp_counts_the_passes_that_average(path: Path) -> None:
    with wagma.Profile(COMM, path) as profile, wrapped(COMM, build_model(), []) as model:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in profile.batches(range(STEPS)):
            optimizer.zero_grad()
            with model.no_sync():
                loss_of(model, batch(step, RANK)).backward()
            loss_of(model, batch(step, RANK)).backward()
            optimizer.step()
    found = load(path)
    assert found.micro_batches is not None and found.micro_batches.shape[2] == 2
    assert found.communication_sizes[37 * 8][0] == SIZE * found.steps


def test_the_documents_loops(path: Path) -> None:
    """The code of profile.md, run as it stands."""
    training, plain, reading = blocks("profile.md", "python")
    names: dict[str, Any] = {"comm": COMM, "path": path, "MPI": MPI}
    targets = torch.zeros(8).double()
    names["model"] = build_model()
    names["loader"] = [(batch(step, RANK), targets) for step in range(STEPS)]
    names["loss_function"] = lambda output, target: (output[:, 0] - target).square().mean()
    exec(training, names)
    exec(reading, names)
    assert names["found"].method == "AllreduceSGD"
    names["compute"] = lambda data: data[0].numpy().sum(axis=0)
    exec(plain, names)
    assert load(path).communication_sizes.keys() == {4 * 8}


def test_nothing_stays_behind(path: Path) -> None:
    from torch.optim import optimizer

    recorded(path, partial(train_mpi4py, nowhere))
    model = build_model()
    with wagma.Profile(COMM, path, warmup=1):
        inner = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(3):
            loss_of(model, batch(step, RANK)).backward()
            inner.step()
    assert not optimizer._global_optimizer_pre_hooks
    assert not optimizer._global_optimizer_post_hooks
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    assert watching.watcher is None


def test_a_loop_that_raises_leaves_its_profile(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), wagma.Profile(COMM, path, warmup=1) as profile:
        for _ in range(4 + RANK):
            profile.step()
        raise ZeroDivisionError
    assert load(path).steps == 3


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        (
            {"path": "missing/profile.json"},
            OSError,
            r"rank 0 cannot write: .*missing/profile.json: No such",
        ),
        ({"path": 3}, TypeError, "path is 3"),
        ({"warmup": 0}, ValueError, "warmup is 0: at least 1"),
        ({"model": "model"}, TypeError, "model is a str"),
        ({"comm": "world"}, TypeError, "comm='world' is no communicator"),
        ({"comm": MPI.COMM_NULL}, ValueError, "COMM_NULL"),
    ],
)
def test_wrong_arguments_are_named_on_every_rank(
    path: Path, changed: dict[str, Any], error: type[Exception], said: str
) -> None:
    arguments = {"comm": COMM, "path": path, **changed}
    if isinstance(changed.get("path"), str):
        arguments["path"] = path.parent / changed["path"]
    with pytest.raises(error, match=said) as raised, wagma.Profile(**arguments):
        pytest.fail("the training began")
    assert raised.value.__cause__ is None  # users see one traceback


def test_nested_profiles_are_refused(path: Path) -> None:
    with wagma.Profile(COMM, path, warmup=1) as outer:
        with pytest.raises(RuntimeError, match="cannot be nested"):
            wagma.Profile(COMM, path).__enter__()
        outer.step()
        outer.step()
    assert load(path).steps == 1
    with pytest.raises(RuntimeError, match="outside of the profile's with block"):
        outer.step()


@pytest.mark.parametrize(
    ("steps", "said"), [(0, "call profile.step\\(\\)"), (3, "made 3 steps, and the first 3 are")]
)
def test_no_recorded_step_is_an_error(path: Path, steps: int, said: str) -> None:
    with pytest.raises(RuntimeError, match=said), wagma.Profile(COMM, path) as profile:
        for _ in range(steps):
            profile.step()
    assert not path.exists()
