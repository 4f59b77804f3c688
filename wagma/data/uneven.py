"""A batch sampler with a batch size of its own for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any, SupportsIndex

from wagma.data.epoch import Epoch
from wagma.inject.checks import check_count, check_rank

_STATE = ("dataset_size", "seed", "shuffle", "epoch", "steps", "samples")


class UnevenBatchSampler:
    """Draw batches of different size on each rank, and each sample once per epoch.

    A batch sampler for ``torch.utils.data.DataLoader(dataset, batch_sampler=sampler)`` and
    torchdata's StatefulDataLoader. An epoch has ceil(N / B) steps on every rank, with N samples and
    B = sum(batches); the last step divides the remaining samples in the same proportions, by
    largest remainder. A rank's share may be 0: `collate` makes tensors from its empty batches.

    >>> samplers = [UnevenBatchSampler(8, [3, 2, 0], rank, seed=1) for rank in range(3)]
    >>> for batches in zip(*samplers):  # equally many steps on all ranks
    ...     print(*map(len, batches))
    3 2 0
    2 1 0

    A training loop on each rank, which may resume from a saved state::

        sampler = UnevenBatchSampler(dataset, plan, comm.rank, seed=1)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate(dataset))
        if resuming:
            sampler.load_state_dict(saved)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for step, batch in enumerate(loader, sampler.first_step):
                ...
                saved = sampler.state_dict(steps=step + 1)

    All ranks have to pass the same arguments except `rank`, and to change batches at the same
    steps. The order depends on seed and epoch alone. Iterating again repeats the epoch, until
    `set_epoch`.

    With Accelerate, pass the sampler to the DataLoader, but do not pass this DataLoader to
    ``prepare``, which would divide it among the ranks again.

    Args:
        dataset_size: number of samples N, at least B; or a dataset with a length.
        batches: b_r, samples per step of each rank, >= 0, not all 0: (P,).
        rank: rank of this process, 0 to P - 1.
        seed: seed of the order, >= 0.
        epoch: number of the first epoch, >= 0.
        shuffle: whether the order is random; False: the order of the dataset.
        limits: largest number of samples per step that fit into each rank's memory: (P,). None: no
            limits.

    Raises:
        ValueError: a value is out of its range, a batch is above its rank's limit, or the dataset
            is smaller than B.
        TypeError: a value is of a wrong type, or the dataset has no length.
    """

    def __init__(
        self,
        dataset_size: SupportsIndex | Sized,
        batches: Sequence[SupportsIndex],
        rank: SupportsIndex,
        *,
        seed: SupportsIndex,
        epoch: SupportsIndex = 0,
        shuffle: bool = True,
        limits: Sequence[SupportsIndex] | None = None,
    ) -> None:
        self._size = _length(dataset_size)
        self._ranks = len(batches)
        self._limits = None
        if limits is not None:
            if len(limits) != self._ranks:
                raise ValueError(
                    f"limits has {len(limits)} numbers: one for each of batches, "
                    f"{self._ranks}, is needed"
                )
            self._limits = [check_count(f"limits[{i}]", limit, 0) for i, limit in enumerate(limits)]
        self._batches = self._checked(batches)
        self._rank = check_rank(rank, self._ranks)
        self._seed, self._shuffle = check_count("seed", seed, 0), bool(shuffle)
        self._start(check_count("epoch", epoch, 0))

    @property
    def epoch(self) -> int:
        """The number of the epoch to iterate over."""
        return self._epoch.number

    @property
    def first_step(self) -> int:
        """The step at which iteration begins: 0, unless a state was loaded."""
        return 0 if self._exhausted else self._epoch.first

    @property
    def next_step(self) -> int:
        """The first step that was not drawn yet, the earliest one for `set_batches`.

        Workers of a DataLoader prefetch steps, and draw ahead of the training.
        """
        return self._next

    @property
    def batches(self) -> tuple[int, ...]:
        """The newest batches of all ranks: (P,)."""
        return tuple(self._batches)

    def __len__(self) -> int:
        """Return the number of steps of an iteration."""
        epoch = self._new_epoch(self.epoch) if self._exhausted else self._epoch
        return epoch.end - epoch.first

    def __iter__(self) -> Iterator[list[int]]:
        """Return an iterator over this rank's batches: indices of samples, some empty."""
        if self._exhausted:
            self._start(self.epoch)
        self._next = self._epoch.first
        return self._draw(self._epoch)

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Go to the beginning of another epoch, with the newest batches.

        It does nothing for the current epoch, so that a loop over epochs can begin with the one
        whose state was loaded.

        Raises:
            ValueError: `epoch` is below 0.
            TypeError: `epoch` is no integer.
        """
        if (number := check_count("epoch", epoch, 0)) != self.epoch:
            self._start(number)

    def set_batches(self, batches: Sequence[SupportsIndex], from_step: SupportsIndex) -> None:
        """Change the batches of all ranks from a step of this epoch on; B may change too.

        All ranks have to make the same change at the same step. `next_step` differs between ranks
        if workers prefetch: agree on the largest one. Earlier changes from this or a later step on
        are forgotten. Later epochs use the newest batches.

        Args:
            batches: b_r, samples per step of each rank, >= 0, not all 0: (P,).
            from_step: the first step with these batches; `next_step` or later.

        Raises:
            ValueError: the step was drawn already, or a batch is wrong; nothing has changed.
            TypeError: a value is no integer; nothing has changed.
        """
        step, checked = check_count("from_step", from_step, 0), self._checked(batches)
        if step < self._next:
            raise ValueError(
                f"from_step is {step}: step {step} of epoch {self.epoch} was drawn already, by the "
                "iterator or ahead of it by a DataLoader's workers; the first step that can change "
                f"is {self._next}, next_step"
            )
        self._batches = checked
        self._epoch.change(step, checked)

    def state_dict(self, steps: SupportsIndex | None = None) -> dict[str, int | bool]:
        """Return the position in the epoch, the same on all ranks, as plain numbers.

        Args:
            steps: number of trained steps of the epoch. None: all drawn steps. These are more if a
                DataLoader's workers prefetch, but exact with StatefulDataLoader, which takes the
                state at each draw.

        Raises:
            ValueError: the epoch has no such step, or the step precedes the loaded state.
            TypeError: `steps` is no integer.
        """
        done = self._next
        if steps is not None:
            done = check_count("steps", steps, self._epoch.first, self._epoch.end)
        values = (self._size, self._seed, self._shuffle, self.epoch, done)
        return dict(zip(_STATE, (*values, self._epoch.samples_before(done)), strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, also one of another number of ranks.

        The remaining samples of the state's epoch are divided by this sampler's newest batches;
        seed and order are those of the state. If no samples remain an iteration has no steps. But a
        sampler that is at a later epoch stays there, for loaders that load a state when they begin
        to iterate.

        Args:
            state: a state from `state_dict`.

        Raises:
            ValueError: the state is of a dataset of another size, or incomplete; nothing has
                changed.
            TypeError: a value is no integer; nothing has changed.
        """
        if missing := set(_STATE) - state.keys():
            raise ValueError(
                f"state has no {', '.join(sorted(missing))}: pass what state_dict() returned"
            )
        if (size := check_count("dataset_size", state["dataset_size"], 1)) != self._size:
            raise ValueError(
                f"state is of a dataset of {size} samples, and this one has {self._size}: the "
                "remaining samples are not known; begin a new epoch, without load_state_dict"
            )
        number, steps = (
            check_count("epoch", state["epoch"], 0),
            check_count("steps", state["steps"], 0),
        )
        samples = check_count("samples", state["samples"], 0, size)
        self._seed, self._shuffle = check_count("seed", state["seed"], 0), bool(state["shuffle"])
        if samples == size and self.epoch > number:
            self._start(self.epoch)
            return
        self._start(number)
        self._epoch.begin(steps, samples, self._batches)
        self._next = steps

    def _start(self, number: int) -> None:
        """Begin an epoch with the newest batches; older iterators stay in their epochs."""
        self._epoch = self._new_epoch(number)
        self._next = 0
        self._exhausted: bool = False

    def _new_epoch(self, number: int) -> Epoch:
        epoch = Epoch(self._size, self._seed, number, self._shuffle)
        epoch.begin(0, 0, self._batches)
        return epoch

    def _draw(self, epoch: Epoch) -> Iterator[list[int]]:
        step = epoch.first
        while step < epoch.end:
            share = epoch.share(step, self._rank)
            step += 1
            if epoch is self._epoch:
                self._next = step
            yield share
        if epoch is self._epoch:
            self._exhausted = True

    def _checked(self, batches: Sequence[SupportsIndex]) -> list[int]:
        """Return the batches of all ranks after checking them and their limits."""
        checked = [check_count(f"batches[{i}]", batch, 0) for i, batch in enumerate(batches)]
        if len(checked) != self._ranks:
            raise ValueError(
                f"batches has {len(checked)} numbers: one for each of {self._ranks} ranks is needed"
            )
        for rank, (batch, most) in enumerate(zip(checked, self._limits or checked, strict=True)):
            if batch > most:
                raise ValueError(
                    f"batches[{rank}] is {batch}: rank {rank} has memory for {most} samples; give "
                    "the others more, or take a smaller total"
                )
        if not (total := sum(checked)):
            raise ValueError("batches are all 0: some rank needs samples")
        if total > self._size:
            raise ValueError(
                f"batches add up to {total}, and dataset_size is {self._size}: not even one step "
                "is full; take a smaller total"
            )
        return checked


def _length(dataset_size: SupportsIndex | Sized) -> int:
    """Return the number of samples: an integer, or a dataset's length."""
    if isinstance(dataset_size, Sized):
        return check_count("the length of the dataset", len(dataset_size), 1)
    if not isinstance(dataset_size, SupportsIndex):
        raise TypeError(
            f"dataset_size is {dataset_size!r}, which has no length: the number of samples is "
            "needed, or a dataset with __len__ and __getitem__; an iterable dataset divides itself "
            "among ranks, and takes no sampler"
        )
    return check_count("dataset_size", dataset_size, 1)
