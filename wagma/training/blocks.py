"""The with blocks of an optimizer: accumulation of gradients, and uneven data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import SupportsIndex

from torch.optim import Optimizer

from wagma.training.joining import Pace, last_version
from wagma.training.micro_batching import MicroBatchingOptimizer
from wagma.training.policies.base import ComputePolicy


class BlocksOptimizer(MicroBatchingOptimizer):
    """The part of a `wagma.DistributedOptimizer` that has `no_sync` and `join`."""

    _pace: Pace

    def __init__(self, inner: Optimizer, policy: ComputePolicy) -> None:
        super().__init__(inner, policy)
        self._blocks: list[str] = []  # names of the with blocks around the current call
        self._last: int | None = None  # version at which join() ends

    @abstractmethod
    def _passive_step(self) -> None:
        """Make a step without gradients of this rank."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients, as with DDP: backward passes in the block, the step after it.

        ``AllreduceSGD(bucket_bytes=...)`` needs the block, because backward() sends gradients. For
        all others only steps communicate: the block changes nothing, and gradients accumulate
        without it. A step inside the block, which would make the models differ under DDP, is
        refused.
        """
        with self._inside("no_sync"):
            self._algorithm.hold(holding=True)
            try:
                yield
            finally:
                self._algorithm.hold(holding="no_sync" in self._blocks[:-1])

    @contextmanager
    def join(self, steps: SupportsIndex) -> Iterator[int]:
        """Train on uneven data: this rank makes `steps` steps in the block, others more or fewer.

        ::

            with opt.join(len(loader)):
                for inputs, targets in loader: ...
                    opt.step()

        Collective. After the block a rank with fewer steps than others takes part in their steps,
        without gradients, until all ranks are at one version. If the algorithm averages models the
        rank contributes its model, at the pace of its last steps. If it averages gradients the rank
        contributes none, so that the mean is over the ranks with data, and applies the averages.
        After an exception the rank takes part in nothing. When the ranks agree to stop (`stopping`)
        the block ends early: loops have to test that too.

        Args:
            steps: number of versions for which this rank has data, >= 0.

        Returns:
            As the block's value the version at which all ranks end. If versions can advance by more
            than one (``missed="fast-forward"``, EagerSGD), end the loop at that version, even if
            data is left.

        Raises:
            TypeError: `steps` is no int; on every rank.
            ValueError: `steps` is negative, or the inner optimizer needs a closure; on every rank.
            RuntimeError: inside another `join` or `no_sync`; the algorithm needs no `join`.
        """
        self._check_call("join()")
        last = last_version(self._algorithm, self._inner, steps)
        self._last = last
        self._algorithm.hint(None)
        try:
            with self._inside("join"):
                yield last
            self._algorithm.check_open("join()")
            self._algorithm.weight = self._algorithm.default_weight
            while self._algorithm.version < last and not self._algorithm.stops.agreed:
                if self._algorithm.wait_avoiding:
                    self._pace.keep()
                self._passive_step()
        finally:
            self._last = None

    @contextmanager
    def _inside(self, block: str) -> Iterator[None]:
        self._blocks.append(block)
        try:
            yield
        finally:
            self._blocks.pop()

    def _check_call(self, call: str) -> None:
        self._algorithm.check_open(call)
        if self._blocks:
            raise RuntimeError(f"{call} inside {self._blocks[-1]}(): call it after the block")
