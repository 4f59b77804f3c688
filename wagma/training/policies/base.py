"""The base of compute policies: how much a rank computes for a step."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

from wagma.training.strategies.base import Algorithm

B = TypeVar("B")


class ComputePolicy:
    """Decide how much this rank computes for a step; the base leaves that to the training loop.

    A `wagma.DistributedOptimizer` calls `begin_step` when the gradients of a step are computed, and
    `end_step` after step and averaging.

    Args:
        algorithm: the algorithm that averages.

    Attributes:
        algorithm: as given.

    Raises:
        TypeError: `algorithm` is no algorithm.

    Not thread-safe.
    """

    @property
    def micro_batches_per_step(self) -> int | None:
        """Largest number of micro-batches in a step; None: no limit."""
        return None

    def __init__(self, algorithm: Algorithm) -> None:
        if not isinstance(algorithm, Algorithm):
            given = f"a {type(algorithm).__name__}"
            if isinstance(algorithm, type):
                given = f"the class {algorithm.__name__}"
            raise TypeError(
                f"algorithm is {given}: pass an object, such as wagma.WAGMA() or "
                "wagma.AllreduceSGD()"
            )
        self.algorithm = algorithm

    def agree(self, model: torch.nn.Module | None) -> None:
        """Check the arguments, and that they are equal on all ranks; collective.

        Args:
            model: the `model` passed to the optimizer.

        Raises:
            TypeError, ValueError: an argument is wrong on any rank; on every rank.
            MismatchError: the ranks have different policies.
        """

    def attach(self, inner: Optimizer) -> None:
        """Start with the optimizer `inner`; called after the algorithm's `attach`."""

    def draw(
        self,
        batches: Iterable[B],  # noqa: ARG002
        weight: Callable[[B], float] | None,  # noqa: ARG002
    ) -> Iterator[B]:
        """Return the micro-batches of this step."""
        raise RuntimeError(
            "micro_batches() needs a compute policy: pass DistributedOptimizer "
            "wagma.DropCompute(algorithm, micro_batches=M), or loop over the batches themselves"
        )

    def micro_batch(self) -> AbstractContextManager[None]:
        """Return a context manager for the computation of a micro-batch."""
        return nullcontext()

    def begin_step(self, parameters: Sequence[torch.Tensor], closure: object) -> None:
        """Set ``.grad`` and the algorithm's weight to what is to be averaged."""

    def end_step(self, inner: Optimizer, last: int | None) -> None:
        """Handle the end of a step, with or without a gradient of this rank.

        Args:
            inner: the optimizer of this rank's own steps.
            last: version at which a `DistributedOptimizer.join` ends; None: outside a `join`.
        """

    def fail_step(self) -> None:
        """Clean up after a step that raised an exception."""
        self.algorithm.fail_step()

    def reattach(self, parameters: Sequence[torch.Tensor]) -> None:
        """Continue with these parameters after some were added."""

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training of `steps` steps ends."""
        return steps

    def stats(self) -> dict[str, int | float]:
        """Return counters to add to `DistributedOptimizer.stats`."""
        return {}

    def close(self) -> None:
        """Undo `attach`; may be called again."""

    def state(self) -> dict[str, Any]:
        """Return this rank's state: tensors, numbers and strings."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned on this rank."""
