"""Which samples of an epoch each rank takes at each step. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["Epoch"]


@dataclass
class _Change:
    """From this step on, at which this many samples have been taken, ranks take these batches."""

    step: int
    samples: int
    batches: list[int]


@dataclass
class Epoch:
    """All samples in one order, cut into steps, and these into the ranks' shares.

    At each step the ranks take the next samples, one rank after the other: batches[r] of them. The
    batches may change from any step on. The last step has the samples that are left.

    Attributes:
        size: samples of the dataset.
        seed, number: of the epoch, on which the order depends, and on nothing else.
        shuffle: whether the order is random.
        changes: where the batches change, by step; the first one is where this epoch begins.
    """

    size: int
    seed: int
    number: int
    shuffle: bool
    changes: list[_Change] = field(default_factory=list)

    def change(self, step: int, batches: list[int]) -> None:
        """Let ranks take other batches from a step on, `first` or later; forget later changes."""
        new = _Change(step, self.samples_before(step), batches)
        self.changes = [*(change for change in self.changes if change.step < step), new]

    def begin(self, step: int, samples: int, batches: list[int]) -> None:
        """Begin at a step before which so many samples were taken elsewhere."""
        self.changes = [_Change(step, samples, batches)]

    @property
    def first(self) -> int:
        """The step at which it begins."""
        return self.changes[0].step

    @property
    def end(self) -> int:
        """The step after the last one."""
        for i, change in enumerate(self.changes):
            end = change.step + -(-(self.size - change.samples) // sum(change.batches))
            if i + 1 == len(self.changes) or end <= self.changes[i + 1].step:
                return end
        raise AssertionError("an epoch has at least one change")

    def samples_before(self, step: int) -> int:
        """Return how many samples have been taken before a step, `first` or later."""
        change = self._at(step)
        taken = change.samples + (step - change.step) * sum(change.batches)
        return min(taken, self.size)

    def share(self, step: int, rank: int) -> list[int]:
        """Return what a rank takes at a step: indices of samples."""
        batches, begin = self._at(step).batches, self.samples_before(step)
        rest = self.size - begin
        if rest < sum(batches):
            batches = _largest_remainder(rest, batches)
        begin += sum(batches[:rank])
        stop = begin + batches[rank]
        if not self.shuffle:
            return list(range(begin, stop))
        indices: list[int] = self._order[begin:stop].tolist()
        return indices

    def _at(self, step: int) -> _Change:
        return max(
            (change for change in self.changes if change.step <= step), key=lambda found: found.step
        )

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        """A random order of all samples.

        numpy promises that generators of bits stay as they are, which it does not for permutations:
        a checkpoint may be loaded where another numpy is, and so may a rank.
        """
        entropy = np.random.SeedSequence((self.seed, self.number))
        keys = np.random.Philox(entropy).random_raw(self.size)
        return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _largest_remainder(total: int, shares: list[int]) -> list[int]:
    """Return integers that add up to `total`, less than all shares, in their proportions.

    None is above its share, and one of 0 stays 0: a share is rounded up only if it was cut off.
    """
    whole = sum(shares)
    found = [total * share // whole for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda i: (-(total * shares[i] % whole), i))
    for i in by_rest[: total - sum(found)]:
        found[i] += 1
    return found
