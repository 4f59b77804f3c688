"""PyTorch's DistributedDataParallel as an algorithm of the training benchmark."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from asked import settings
from mpi4py import MPI

from wagma.benchmarks.training.algorithms import check_name, find
from wagma.benchmarks.training.ddp import Together, wrapped
from wagma.benchmarks.training.tasks import load
from wagma.benchmarks.training.tasks.digits import Digits, DigitsTask
from wagma.benchmarks.training.train import Trained, train
from wagma.inject import parse
from wagma.training.flat import FlatParameters, Layout

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
STEPS = 6


@dataclass
class Recording(DigitsTask):
    """Random images; keeps the model that was evaluated last."""

    latest: torch.Tensor | None = None

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        images = torch.rand(80, 64, generator=generator)
        classes = torch.randint(10, (80,), generator=generator)
        super().__init__(Digits(images, classes, images, classes))

    def evaluate(self, model: torch.nn.Module) -> float:
        self.latest = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        return 0.0


def trained(name: str, task: Any, parameters: int | None = None, parts: int = 1) -> Trained:
    torch.set_num_threads(1)
    chosen = settings(
        algorithms=(name,),
        parameters=parameters,
        steps=STEPS,
        sync_period=2,
        batch=12,
        learning_rate=0.05,
        micro_batches=parts,
    )
    one = find(check_name(name), chosen, COMM.size)
    delays = parse("none", COMM.size)
    found = train(COMM, chosen, one, 1, task, delays, lambda _: None, lambda: False)
    assert found is not None
    return found


def check_one_model(made: Trained) -> None:
    """The ranks have one model in every step."""
    assert len(made.consensus) == STEPS // 2
    assert max(made.consensus) < 1e-6


@pytest.mark.parametrize(("parameters", "parts"), [(None, 1), (4000, 1), (None, 3)])
def test_it_trains_the_model_of_allreduce(parameters: int | None, parts: int) -> None:
    models = []
    for name in ("allreduce", "allreduce-buckets1", "ddp"):
        task = Recording()
        made = trained(name, task, parameters, parts)
        check_one_model(made)
        if COMM.rank == 0:
            assert task.latest is not None
            models.append(task.latest)
    if COMM.rank == 0:
        whole, buckets, ddp = models
        assert torch.equal(whole, buckets)
        torch.testing.assert_close(ddp, whole, rtol=1e-5, atol=1e-6)


def test_a_policy_that_is_played_may_be_wrapped() -> None:
    check_one_model(trained("ddp", load("episodes", 1)))


def test_parameters_stay_in_the_flat_array() -> None:
    torch.manual_seed(COMM.rank)
    model, padding = torch.nn.Linear(4, 3), [torch.nn.Parameter(torch.full((5,), 1.0 + COMM.rank))]
    tensors = [*model.parameters(), *padding]
    flat = FlatParameters(tensors, Layout.of(tensors))
    with wrapped(COMM, model, padding) as calls:
        calls(torch.ones(2, 4)).sum().backward()
        flat.check()
        assert len(set(COMM.allgather(flat.flat.numpy().tobytes()))) == 1
        assert padding[0].grad is None
    assert not torch.distributed.is_initialized()


def release_a_group_that_works() -> torch.Tensor:
    """Return what a group was still to sum when its last reference went."""
    sums = torch.ones(10_000_000)
    model = torch.nn.Linear(4, 3)

    def post(_: torch.Tensor) -> None:
        torch.distributed.all_reduce(sums, async_op=True)

    with wrapped(COMM, model, ()) as calls:
        outputs = calls(torch.ones(2, 4))
        outputs.register_hook(post)  # backward() gives what is called in it an object of Python
        outputs.sum().backward()
    return sums


def test_a_group_that_works_is_released() -> None:
    """Its thread takes the GIL to free the work, while the release waits for the thread."""
    release_a_group_that_works()  # torch keeps the first group of a process
    sums = release_a_group_that_works()
    assert sums[0] == sums[-1] == COMM.size


def test_ranks_stop_before_the_same_step() -> None:
    asked = []
    together = Together(COMM, lambda: asked.append(1) or (COMM.rank == 0 and len(asked) == 3))
    steps = 0
    while steps < 10 and not together.now():
        steps += 1
    together.close()
    assert COMM.allgather(steps) == [3] * COMM.size
