"""The mean of models saved by another number of ranks."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

from wagma.training.ranks import Ranks

_PIECE = 1 << 22  # elements averaged at a time


class ModelSum:
    """Sum the floating tensors of models in float64.

    Args:
        like: state of one of the models: tensors and other values by name.

    Not thread-safe.
    """

    def __init__(self, like: dict[str, Any]) -> None:
        self._floating = {
            name: value
            for name, value in like.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        }
        self._like = like
        self._sum = torch.zeros(
            sum(value.numel() for value in self._floating.values()), dtype=torch.float64
        )
        self.digests: set[str] = set()

    def add(self, model: dict[str, Any]) -> None:
        """Add a model with the same names and shapes."""
        digest = hashlib.sha256()
        start = 0
        for name, like in self._floating.items():
            value = model[name].contiguous()
            digest.update(value.view(-1).view(torch.uint8).numpy().data)
            self._sum[start : start + like.numel()] += value.reshape(-1)
            start += like.numel()
        self.digests.add(digest.hexdigest())

    def mean(self, ranks: Ranks, saved: int) -> dict[str, Any]:
        """Return the mean of all models that the ranks have added; collective.

        If all models are equal the result is bit-identical. Other values are those of `like`.

        Args:
            ranks: the ranks, all of which call this.
            saved: total number of models that the ranks have added, >= 1.
        """
        with ranks.meet() as meeting:
            digests = meeting.exchange(lambda: sorted(self.digests), last=True)
        if len({one for theirs in digests for one in theirs}) == 1:
            return self._like
        for start in range(0, self._sum.numel(), _PIECE):
            Ranks.average(ranks, self._sum[start : start + _PIECE])
        self._sum *= ranks.size / saved
        return {**self._like, **dict(self._means())}

    def _means(self) -> Iterable[tuple[str, torch.Tensor]]:
        start = 0
        for name, like in self._floating.items():
            part = self._sum[start : start + like.numel()]
            yield name, part.to(like.dtype).view(like.shape)
            start += like.numel()
