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

__all__ = ["BlocksOptimizer"]


class BlocksOptimizer(MicroBatchingOptimizer):
    """The part of a `wagma.DistributedOptimizer` that has `no_sync` and `join`."""

    def __init__(self, inner: Optimizer, policy: ComputePolicy) -> None:
        super().__init__(inner, policy)
        self._pace = Pace()
        self._blocks: list[str] = []  # the names of the with blocks that this is in
        self._last: int | None = None  # version at which join() ends

    @abstractmethod
    def _passive_step(self) -> None:
        """Make a step without gradients of this rank."""

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulation of gradients, as with DDP: backward passes inside, the step after the block.

        Where only steps communicate the block costs and changes nothing, and without it gradients
        accumulate as well. With ``AllreduceSGD(bucket_bytes=...)``, whose gradients leave in
        backward(), it is needed. A step inside, which with DDP would make the models differ, is
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
        """Uneven data: inside, this rank makes `steps` steps, another one more or fewer.

        ::

            with opt.join(len(loader)):
                for inputs, targets in loader: ...
                    opt.step()

        Collective. After the block a rank that made fewer than others takes part in their steps
        until all are at one version, without gradients: averaging models it contributes the one it
        has, at the pace of its own last steps; averaging gradients it contributes none, so that
        the mean is over those that have one, and applies the others'. After an exception it takes
        part in nothing. Where the ranks agree to stop (`stopping`) the block ends there: loops test
        that, too.

        Args:
            steps: >= 0, versions that this rank has data for.

        Returns:
            As the block's value the version at which all end. Where versions advance by more than
            one (``missed="fast-forward"``, EagerSGD) a loop ends when `version` is there, with
            what is left of the data.

        Raises:
            TypeError: `steps` is no int; on every rank.
            ValueError: it is negative, or the inner optimizer needs a closure; on every rank.
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
