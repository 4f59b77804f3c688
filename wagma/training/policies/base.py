"""A compute policy: how much a rank computes for a step, whatever averages the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

from wagma.training.strategies.base import Algorithm

__all__ = ["ComputePolicy"]

B = TypeVar("B")


class ComputePolicy:
    """How much this rank computes for a step; this policy leaves that to the training's loop.

    A `wagma.DistributedOptimizer` calls `begin_step` when the gradients of a step are there, and
    `end_step` when it has stepped and averaged.

    Args:
        algorithm: what averages.

    Attributes:
        algorithm: as given.

    Raises:
        TypeError: `algorithm` is none.

    Not thread-safe.
    """

    @property
    def micro_batches_per_step(self) -> int | None:
        """At most so many are drawn for a step; None: no limit."""
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
        """Check that all ranks have made the same policy, and a right one; collective.

        Args:
            model: as the optimizer was given it.

        Raises:
            TypeError, ValueError: an argument is wrong, on any rank; on every rank.
            MismatchError: the ranks have made different policies.
        """

    def attach(self, inner: Optimizer) -> None:
        """Begin to serve the training of `inner`; after the algorithm's `attach`."""

    def draw(
        self,
        batches: Iterable[B],  # noqa: ARG002
        weight: Callable[[B], float] | None,  # noqa: ARG002
    ) -> Iterator[B]:
        """Return the batches of this step."""
        raise RuntimeError(
            "micro_batches() needs a policy that says how many: give DistributedOptimizer "
            "wagma.DropCompute(algorithm, micro_batches=M); without one loop over the batches"
        )

    def micro_batch(self) -> AbstractContextManager[None]:
        """Return the block that a micro-batch is computed in."""
        return nullcontext()

    def begin_step(self, parameters: Sequence[torch.Tensor], closure: object) -> None:
        """Make ``.grad`` and the algorithm's weight what is averaged."""

    def end_step(self, inner: Optimizer, last: int | None) -> None:
        """See the end of a step, or of one without a gradient of this rank.

        Args:
            inner: the optimizer of this rank's own steps.
            last: version at which a `DistributedOptimizer.join` ends; None: it is in none.
        """

    def fail_step(self) -> None:
        """See that a step has raised an exception."""
        self.algorithm.fail_step()

    def reattach(self, parameters: Sequence[torch.Tensor]) -> None:
        """Take notice of parameters that were added."""

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training ends that would otherwise make `steps` steps."""
        return steps

    def stats(self) -> dict[str, int | float]:
        """Return what became of this rank's computation, for `DistributedOptimizer.stats`."""
        return {}

    def close(self) -> None:
        """End what `attach` has begun; may be called again."""

    def state(self) -> dict[str, Any]:
        """Return what this rank has to save: tensors, numbers and texts."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave on this rank."""
