"""Collating of batches, empty ones included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def collate(dataset: Any, collate_fn: Callable[[list[Any]], Any] | None = None) -> Collate:
    """Return a ``collate_fn`` for a DataLoader whose batches may be empty.

    `collate_fn` makes the batches with samples. An empty batch is the batch of ``dataset[0]`` with
    every tensor and array cut to the shape (0, ...): it has the types of other batches, and all
    dimensions but the first, as far as these do not depend on the samples.

    A model returns an empty output for an empty batch, but the mean of an empty loss is NaN. A rank
    of weight 0 does not spoil the average with it.

    Args:
        dataset: dataset of the DataLoader. The first empty batch loads ``dataset[0]``.
        collate_fn: makes a batch from a list of samples: tensors or arrays with the samples along
            the first dimension, or lists of one item per sample, in lists, tuples and mappings.
            None: torch's ``default_collate``.

    Raises:
        TypeError: ``dataset[0]`` is impossible; or, when an empty batch is made, a batch contains a
            value without a first dimension.
    """
    if not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"dataset is {dataset!r}, which has no __getitem__: dataset[0] gives the shapes of an "
            "empty batch"
        )
    return Collate(dataset, collate_fn)


class Collate:
    """The function that `collate` returns; can be pickled if dataset and `collate_fn` can."""

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        self._dataset, self._collate = dataset, collate_fn
        self._empty: Any = None

    def __call__(self, samples: list[Any]) -> Any:
        """Return the batch of these samples; the list may be empty."""
        if samples:
            return self._batch(samples)
        if self._empty is None:
            self._empty = _cut(self._batch([self._dataset[0]]))
        return _cut(self._empty)  # lists and mappings that the caller may change

    def _batch(self, samples: list[Any]) -> Any:
        if self._collate is not None:
            return self._collate(samples)
        from torch.utils.data import default_collate

        return default_collate(samples)


def _cut(batch: Any) -> Any:
    """Return a batch without its samples."""
    if _has_shape(batch):
        if not len(batch.shape):
            raise TypeError(
                f"a batch holds {batch!r}, which has no dimension for samples, so that it cannot "
                "be made empty: give a collate_fn whose batches have the samples along the first "
                "dimension"
            )
        return batch[:0]
    if isinstance(batch, Mapping):
        return type(batch)({name: _cut(part) for name, part in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        if not (batch and all(map(_is_batch, batch))):
            return type(batch)()  # one item per sample
        parts = [_cut(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)  # type: ignore[call-arg]
    raise TypeError(
        f"a batch holds {batch!r}, and how to make it empty is not known: give a collate_fn whose "
        "batches are tensors, arrays, lists, tuples and mappings of these"
    )


def _has_shape(batch: Any) -> bool:
    """Tell whether something is a tensor or an array."""
    return isinstance(batch, np.ndarray) or (hasattr(batch, "shape") and hasattr(batch, "dtype"))


def _is_batch(part: Any) -> bool:
    """Tell whether a part of a batch holds the samples itself."""
    container = isinstance(part, (Mapping, Sequence)) and not isinstance(part, (str, bytes))
    return container or _has_shape(part)
