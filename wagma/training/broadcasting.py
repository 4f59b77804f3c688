"""A whole model made rank 0's on every rank."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Unpack

import torch

from wagma.collectives.rendezvous.meeting import Comm
from wagma.training.buffers import broadcast_tensors
from wagma.training.ranks import Ranks, Waits

__all__ = ["broadcast", "tensors_of"]


def broadcast(model: torch.nn.Module, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
    """Makes all parameters and buffers of `model` rank 0's, bit for bit; collective.

    A `DistributedOptimizer` does so with the parameters that it trains; given ``model=model`` it
    does so with the whole model.

    Args:
        model: of one structure on all ranks, on the CPU; written in place.
        comm: the ranks that have it; "auto": those that the launcher started; None: those that a
            launcher such as torchrun started on this machine, see `PartialAllreduce`.
        waits: timeout, stall_warning and transport, see `wagma.algorithms.Algorithm`.

    Raises:
        TypeError: `model` is no module.
        ValueError: a tensor cannot be written, and is named, or the ranks have different models; on
            every rank.
    """
    broadcast_tensors(Ranks(comm, **waits), tensors_of(model))


def tensors_of(
    model: torch.nn.Module, without: Iterable[torch.Tensor] = ()
) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of `model`, but for some, by name.

    Raises:
        TypeError: it is no module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: it has to be a torch.nn.Module")
    left_out = set(without)
    named = chain(model.named_parameters(), model.named_buffers())
    return {name: tensor for name, tensor in named if tensor not in left_out}
