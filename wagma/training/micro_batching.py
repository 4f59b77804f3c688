"""Gradients that are accumulated over micro-batches, as many as a compute policy says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from wagma.training.averaging import AveragingOptimizer

__all__ = ["MicroBatchingOptimizer"]

B = TypeVar("B")


class MicroBatchingOptimizer(AveragingOptimizer):
    """The part of a `wagma.DistributedOptimizer` that draws micro-batches for a policy."""

    def micro_batches(
        self, batches: Iterable[B], weight: Callable[[B], float] | None = None
    ) -> Iterator[B]:
        """Yield those of `batches` that this rank computes in this step.

        ::

            for inputs, targets in opt.micro_batches(batches):
                loss(model(inputs), targets).backward()
            opt.step()

        The losses are means over their micro-batches, and are not divided: the step divides the
        gradients. Only what is computed is drawn: an iterator goes on where it was, as over the
        batches of an epoch until `epoch_done`. A loop that is left early counts what is finished.

        Args:
            batches: a list of this step's micro-batches, or an iterator over more.
            weight: of a micro-batch: its samples or tokens, where losses are sums over these, not
                means; the average is then the exact mean over the samples or tokens of all ranks.
                Needs ``correction="stochastic"``.

        Raises:
            RuntimeError: the optimizer has no policy such as `wagma.DropCompute`.
            TypeError: `batches` cannot be iterated over.
            ValueError: `weight` with another correction, or a weight is negative or not finite.
        """
        return self._policy.draw(batches, weight)

    def micro_batch(self) -> AbstractContextManager[None]:
        """Return the block in which the body of a loop over `micro_batches` computes.

        ::

            for inputs, targets in opt.micro_batches(batches):
                with opt.micro_batch():
                    loss(model(inputs), targets).backward()

        `wagma.DropCompute` with ``preempt=True`` needs it, and leaves it when the threshold passes;
        otherwise it does nothing.
        """
        return self._policy.micro_batch()

    @property
    def micro_batches_per_step(self) -> int | None:
        """At most so many micro-batches are drawn for a step; None: no limit."""
        return self._policy.micro_batches_per_step

    @property
    def epoch_done(self) -> bool:
        """Whether the data of all ranks have run out: in the last step none had a micro-batch.

        That step changes nothing. It stays true until the next step, so that a loop over an epoch
        asks at its end: ``while True: ...; opt.step()``, and ``if opt.epoch_done: break``. Use it
        with AllreduceSGD, which waits for all ranks.
        """
        outcome = self._algorithm.outcome
        return outcome is not None and outcome.weight == 0

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training of `steps` steps ends.

        It is later where `wagma.DropCompute` makes extra steps for what it drops, or leaves out
        local steps: a training then ends with a period. The same on all ranks, and known better
        when the threshold is: ask in every step.
        """
        return self._policy.steps_to_do(steps)
