"""The samples of an epoch that each rank takes at each step. Pure."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass
class _Change:
    """Batches of the ranks from a step on, before which so many samples were taken."""

    step: int
    samples: int
    batches: list[int]


@dataclass
class Epoch:
    """All samples in one order, divided into steps, and each step into the ranks' shares.

    At each step the ranks take the next samples in rank order, rank r batches[r] of them. The
    batches may change at any step. The last step has the remaining samples.

    Attributes:
        size: number of samples in the dataset.
        seed, number: seed and number of the epoch; the order depends on these alone.
        shuffle: whether the order is random.
        changes: changes of the batches, by step; the first one is the beginning of this epoch.
    """

    size: int
    seed: int
    number: int
    shuffle: bool
    changes: list[_Change] = field(default_factory=list)

    def change(self, step: int, batches: list[int]) -> None:
        """Change the batches from a step on, `first` or later; forget later changes."""
        new = _Change(step, self.samples_before(step), batches)
        self.changes = [*(change for change in self.changes if change.step < step), new]

    def begin(self, step: int, samples: int, batches: list[int]) -> None:
        """Begin at a step before which so many samples were already taken."""
        self.changes = [_Change(step, samples, batches)]

    @property
    def first(self) -> int:
        """The step at which the epoch begins."""
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
        """Return the number of samples taken before a step, `first` or later."""
        change = self._at(step)
        taken = change.samples + (step - change.step) * sum(change.batches)
        return min(taken, self.size)

    def share(self, step: int, rank: int) -> list[int]:
        """Return the indices of the samples that a rank takes at a step."""
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
        """A random order of all samples, the same with every version of numpy.

        numpy keeps the streams of its bit generators stable, but not its permutations, while
        checkpoints and ranks may meet different versions of numpy.
        """
        entropy = np.random.SeedSequence((self.seed, self.number))
        keys = np.random.Philox(entropy).random_raw(self.size)
        return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _largest_remainder(total: int, shares: list[int]) -> list[int]:
    """Return integers in proportion to `shares` that sum to `total`, which is less than theirs.

    No integer is above its share, and 0 stays 0: only shares with a fraction are rounded up.
    """
    whole = sum(shares)
    parts = [total * share // whole for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda i: (-(total * shares[i] % whole), i))
    for i in by_rest[: total - sum(parts)]:
        parts[i] += 1
    return parts
