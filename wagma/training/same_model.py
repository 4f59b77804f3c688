"""Checks that all ranks train the same model with the same values."""

import hashlib
from collections.abc import Sequence

import torch

from wagma.launch.logs import RankLogger
from wagma.training.broadcasting import tensors_of
from wagma.training.buffers import broadcast_tensors
from wagma.training.flat import Layout
from wagma.training.strategies.base import Algorithm

NOT_GIVEN = (
    "the ranks' parameters differed, and are rank 0's now. What the optimizer does not hold, such "
    "as frozen parameters and buffers, stays each rank's own: make all of the model rank 0's with "
    "DistributedOptimizer(..., model=model) or wagma.broadcast(model, comm)"
)


def agree(algorithm: Algorithm, tensors: Sequence[torch.Tensor]) -> Layout:
    """Return the layout of the parameters, equal on all ranks; collective.

    Raises:
        ValueError: a rank's parameters cannot be laid out, or the layouts differ; on every rank.
    """
    with algorithm.meet() as meeting:
        layouts: list[Layout] = []

        def lay_out() -> str:
            layouts.append(Layout.of(tensors))
            return layouts[0].fingerprint()

        prints = meeting.exchange(lay_out)
        mine = layouts[0].describe()
        others = [rank for rank, print_ in enumerate(prints) if print_ != prints[0]]
        # The descriptions may be long: exchange two of them, and only after a mismatch.
        needed = [0, *others[:1]] if others else []
        described = meeting.exchange(lambda: mine if algorithm.rank in needed else [], last=True)
    if others:
        first = others[0]
        raise ValueError(
            f"the ranks train different models: those of ranks {others} are not that of rank 0; "
            f"rank {first} has {_first_difference(described[first], described[0])}. "
            "Build the same model and the same optimizer on every rank"
        )
    return layouts[0]


def _first_difference(theirs: list[str], first: list[str]) -> str:
    """Return the first parameter that differs from rank 0's."""
    for index, (own, other) in enumerate(zip(theirs, first, strict=False)):
        if own != other:
            return f"parameter {index} as {own}, rank 0 as {other}"
    return f"{len(theirs)} parameters, rank 0 has {len(first)}"


def share_rest(
    algorithm: Algorithm,
    tensors: Sequence[torch.Tensor],
    model: torch.nn.Module | None,
    log: RankLogger,
) -> None:
    """Copy the tensors of `model` that are not in `tensors` from rank 0; collective.

    Without a model the ranks compare hashes of `tensors`, and rank 0 warns if they differ, because
    the rest of the model may differ too.
    """
    if model is not None:
        broadcast_tensors(algorithm, tensors_of(model, without=tensors))
        return
    with algorithm.meet() as meeting:
        digests = meeting.exchange(lambda: _digest(tensors), last=True)
    if len(set(digests)) > 1 and algorithm.rank == 0:
        log.warning(NOT_GIVEN)


def _digest(tensors: Sequence[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy()
        digest.update(bits.data)
    return digest.hexdigest()
