"""The ranks on which algorithms are checked, and the small training of a check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import SGD

from wagma.launch.environment import meeting_place
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.ranks import Ranks
from wagma.training.strategies.base import Algorithm

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

TIMEOUT_S = 120.0  # for which a rank waits for others


@dataclass(frozen=True)
class Place:
    """The ranks of a check."""

    make: Callable[[], Algorithm]  # creates an algorithm over these ranks
    rank: int  # this process's rank
    size: int  # the number of ranks


def find(make: Callable[[Any], Algorithm], comm: Comm, ranks: Ranks) -> Iterator[Place]:
    """Yield a single rank, if possible, and all ranks."""
    over_mpi = comm is not None and (comm != "auto" or meeting_place(os.environ) == "MPI")
    if ranks.size > 1 and over_mpi:
        from mpi4py import MPI

        yield Place(lambda: make(MPI.COMM_SELF), 0, 1)
    yield Place(lambda: make(comm), ranks.rank, ranks.size)


class Run:
    """A small training; a context manager like its optimizer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.parameter = new_parameter()
        self.algorithm = place.make()
        if not isinstance(self.algorithm, Algorithm):
            raise TypeError(
                f"make(comm) returned {self.algorithm!r}: it has to return an object of a class "
                "over wagma.Algorithm"
            )
        waits = self.algorithm.waits
        waits["timeout"] = waits["timeout"] or TIMEOUT_S
        self.opt = DistributedOptimizer(new_optimizer(self.parameter), self.algorithm)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: Any) -> None:
        self.opt.__exit__(*error)

    def step(self, weight: float = 1.0, *, closure: bool = False) -> Any:
        """Make a step."""
        version = self.opt.version

        def evaluate() -> float:
            self.opt.zero_grad()
            return backward(self.parameter, version, self.place.rank)

        self.opt.weight = weight
        if closure:
            return self.opt.step(evaluate)
        evaluate()
        return self.opt.step()

    def train(self, last: int, weight: float = 1.0, *, closure: bool = False) -> None:
        """Make steps up to version `last`."""
        while self.opt.version < last:
            self.step(weight, closure=closure)

    def repeats(self) -> bool:
        """Return whether runs are deterministic."""
        return self.place.size == 1 or not self.algorithm.wait_avoiding

    def takes_weights(self) -> bool:
        """Return whether steps may have weights other than 1."""
        try:
            self.algorithm.check_weight(2.0)
        except ValueError:
            return False
        return True

    def values(self) -> torch.Tensor:
        """Return the model."""
        return self.parameter.detach().clone()

    def gradient(self) -> torch.Tensor:
        """Return the gradient of the model."""
        assert self.parameter.grad is not None
        return self.parameter.grad

    def is_alike(self) -> bool:
        """Return whether the model is the same on all ranks; collective."""
        digest = self.values().numpy().tobytes().hex()
        with self.algorithm.meet() as meeting:
            return len(set(meeting.exchange(lambda: digest, last=True))) == 1


def new_parameter() -> torch.nn.Parameter:
    """Return the model."""
    return torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))


def new_optimizer(parameter: torch.nn.Parameter) -> SGD:
    """Return the inner optimizer."""
    return SGD([parameter], lr=0.1, momentum=0.5)


def backward(parameter: torch.Tensor, version: int, rank: int) -> float:
    """Compute gradients that differ between steps and ranks, and return the loss."""
    target = torch.sin(torch.arange(6, dtype=torch.float64) + version + 7 * rank)
    loss = (parameter - target).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()
