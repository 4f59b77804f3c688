"""Trainings that are saved and resumed: what tests of the Checkpointer share."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import COMM, OPTIMIZERS, RANK, SIZE
from torch.utils.data import DataLoader, TensorDataset

import wagma
from wagma.algorithms import Algorithm
from wagma.checkpoint import Checkpointer
from wagma.data import UnevenBatchSampler


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder of all ranks, removed at the end."""
    path = Path(COMM.bcast(tempfile.mkdtemp(prefix="wagma-saved-") if RANK == 0 else None))
    try:
        yield path
    finally:
        COMM.Barrier()
        if RANK == 0:
            shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with shared_folder() as path:
        yield path


def dropping_model() -> torch.nn.Sequential:
    """A model with dropout, buffers and torch's random numbers."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.3), torch.nn.Linear(6, 1)
    ).double()


class Training:
    """A training with dropout, a DataLoader, a sampler and a schedule.

    Args:
        folder: of its checkpoints.
        inner: the name of the inner optimizer.
        make: the algorithm.
        options: of the Checkpointer.
    """

    def __init__(
        self,
        folder: Path,
        inner: str = "SGD",
        make: Callable[..., Algorithm] = wagma.AllreduceSGD,
        comm: Any = COMM,
        **options: Any,
    ) -> None:
        self.model = dropping_model()
        self.inner = OPTIMIZERS[inner](self.model.parameters())
        self.opt = wagma.DistributedOptimizer(self.inner, make(comm), model=self.model)
        numbers = torch.Generator().manual_seed(7)
        data = TensorDataset(torch.randn(60, 4, generator=numbers).double())
        size = comm.size
        self.sampler = UnevenBatchSampler(data, [6 + 2 * r for r in range(size)], comm.rank, seed=1)
        # A generator of its own: a loader that begins again draws one number more.
        self.loader = DataLoader(
            data, batch_sampler=self.sampler, generator=torch.Generator().manual_seed(1)
        )
        self.schedule = torch.optim.lr_scheduler.StepLR(self.inner, 3, 0.9)
        extra = {"sampler": self.sampler, "schedule": self.schedule}
        self.saver = Checkpointer(folder, self.opt, model=self.model, extra=extra, **options)

    def batches(self) -> Iterator[torch.Tensor]:
        epoch = self.sampler.epoch
        while True:
            self.sampler.set_epoch(epoch)
            for (inputs,) in self.loader:
                yield inputs
            epoch += 1

    def train(self, last: int, after_step: Callable[[], object] = lambda: None) -> None:
        for inputs in self.batches():
            self.opt.zero_grad()
            self.model[1].train(len(inputs) > 1)  # one sample has no variance
            self.model(inputs).square().mean().backward()
            self.opt.step()
            self.schedule.step()
            after_step()
            if self.opt.version >= last:
                break

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *error: Any) -> None:
        self.opt.__exit__(*error)
        self.saver.close()

    def everything(self) -> list[torch.Tensor]:
        """What the training has come to."""
        state = self.model.state_dict()
        inner = [
            value
            for slot in self.inner.state.values()
            for value in slot.values()
            if isinstance(value, torch.Tensor)
        ]
        drawn = [torch.rand(1), torch.tensor(self.schedule.get_last_lr())]
        return [value.clone() for value in [*state.values(), *inner, *drawn]]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


__all__ = ["SIZE", "Training", "dropping_model", "equal", "folder", "shared_folder"]
