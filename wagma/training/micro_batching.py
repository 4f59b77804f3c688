"""Gradients accumulated over as many micro-batches as a compute policy allows."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from wagma.training.averaging import AveragingOptimizer

B = TypeVar("B")


class MicroBatchingOptimizer(AveragingOptimizer):
    """The part of a `wagma.DistributedOptimizer` that draws micro-batches for a policy."""

    def micro_batches(
        self, batches: Iterable[B], weight: Callable[[B], float] | None = None
    ) -> Iterator[B]:
        """Yield the micro-batches of `batches` that this rank computes in this step.

        ::

            for inputs, targets in opt.micro_batches(batches):
                loss(model(inputs), targets).backward()
            opt.step()

        Let a loss be the mean over its micro-batch, undivided: the step divides the gradients. Only
        computed micro-batches are drawn: an iterator continues in the next step, as over the
        batches of an epoch until `epoch_done`. If the loop ends early the finished micro-batches
        count.

        Args:
            batches: a list of this step's micro-batches, or an iterator over more.
            weight: returns the weight of a micro-batch, its samples or tokens, if losses are sums
                over these instead of means; the average is then the exact mean over the samples or
                tokens of all ranks. Needs ``correction="stochastic"``.

        Raises:
            RuntimeError: the optimizer has no policy such as `wagma.DropCompute`.
            TypeError: `batches` cannot be iterated over.
            ValueError: `weight` with another correction, or a weight is negative or not finite.
        """
        return self._policy.draw(batches, weight)

    def micro_batch(self) -> AbstractContextManager[None]:
        """Return a context manager for the body of a loop over `micro_batches`.

        ::

            for inputs, targets in opt.micro_batches(batches):
                with opt.micro_batch():
                    loss(model(inputs), targets).backward()

        `wagma.DropCompute` with ``preempt=True`` needs the block, and leaves it when the threshold
        passes; otherwise it does nothing.
        """
        return self._policy.micro_batch()

    @property
    def micro_batches_per_step(self) -> int | None:
        """Largest number of micro-batches in a step; None: no limit."""
        return self._policy.micro_batches_per_step

    @property
    def epoch_done(self) -> bool:
        """Whether the data of all ranks ran out: no rank had a micro-batch in the last step.

        That step changes nothing. The value holds until the next step, so a loop over an epoch
        tests it at the end: ``while True: ...; opt.step()``, then ``if opt.epoch_done: break``. Use
        it with AllreduceSGD, which waits for all ranks.
        """
        outcome = self._algorithm.outcome
        return outcome is not None and outcome.weight == 0

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training of `steps` steps ends.

        The version is larger if `wagma.DropCompute` adds steps for what it drops, or rounds up to
        the end of a period because it leaves out local steps. It is equal on all ranks, and changes
        when the threshold is chosen: call this in every step.
        """
        return self._policy.steps_to_do(steps)
