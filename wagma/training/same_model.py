"""Whether all ranks train the same model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from wagma.training.flat import Layout
from wagma.training.strategies import Algorithm

__all__ = ["agree"]


def agree(algorithm: Algorithm, tensors: Sequence[torch.Tensor]) -> Layout:
    """Lays the parameters out; collective.

    Raises:
        ValueError: those of one rank cannot be laid out, or are another's; on every rank.
    """
    with algorithm.meet() as meeting:
        layouts: list[Layout] = []

        def lay_out() -> str:
            layouts.append(Layout.of(tensors))
            return layouts[0].fingerprint()

        prints = meeting.exchange(lay_out)
        mine = layouts[0].describe()
        others = [rank for rank, print_ in enumerate(prints) if print_ != prints[0]]
        # Of two ranks, and only where it is needed: it can be long.
        told = [0, *others[:1]] if others else []
        described = meeting.exchange(lambda: mine if algorithm.rank in told else [], last=True)
    if others:
        first = others[0]
        raise ValueError(
            f"the ranks train different models: those of ranks {others} are not that of rank 0; "
            f"rank {first} has {_first_difference(described[first], described[0])}. "
            "Build the same model and the same optimizer on every rank"
        )
    return layouts[0]


def _first_difference(theirs: list[str], first: list[str]) -> str:
    """Of a rank from rank 0."""
    for index, (own, other) in enumerate(zip(theirs, first, strict=False)):
        if own != other:
            return f"parameter {index} as {own}, rank 0 as {other}"
    return f"{len(theirs)} parameters, rank 0 has {len(first)}"
