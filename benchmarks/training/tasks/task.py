"""The interface of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True)
class Batch:
    """Which samples a rank takes at a step: a function of these numbers and nothing else."""

    rank: int  # whose it is
    size: int  # ranks P
    step: int  # for which
    samples: int  # how many, >= 1
    seed: int  # of the draws

    @property
    def key(self) -> tuple[int, int, int]:
        """Entropy of a generator of random numbers."""
        return self.seed, self.rank, self.step


class Task(ABC):
    """Data and model; pickled on one rank and equal on all."""

    name: ClassVar[str]  # on the command line
    measures: ClassVar[str]  # what `evaluate` returns, for tables
    in_percent: ClassVar[bool] = True  # whether that is a share, 0 to 1

    @abstractmethod
    def build_model(self, seed: int) -> nn.Module:
        """Return a new model, initialised by `seed`."""

    def optimizer(
        self, parameters: Iterable[torch.nn.Parameter], learning_rate: float
    ) -> torch.optim.Optimizer:
        """Return the optimizer of every rank's own steps: Adam."""
        from torch.optim import Adam

        return Adam(parameters, lr=learning_rate)

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
        """Return the loss of a batch, and what the batch costs.

        The cost is relative, about 1 on average: emulated computing takes so much longer.
        """

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """Return how good the model is, on data that are not trained on; more is better."""
