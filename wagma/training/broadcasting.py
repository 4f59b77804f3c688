"""Broadcast of a whole model from rank 0."""

from collections.abc import Iterable
from itertools import chain
from typing import Unpack

import torch

from wagma.collectives.rendezvous.meeting import Comm
from wagma.training.buffers import broadcast_tensors
from wagma.training.ranks import Ranks, Waits


def broadcast(model: torch.nn.Module, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
    """Copy all parameters and buffers of `model` from rank 0 to all ranks; collective.

    A `DistributedOptimizer` broadcasts the parameters that it trains; given ``model=model`` it
    broadcasts the whole model.

    Args:
        model: a model on the CPU or on GPUs with the same structure on all ranks; written in place.
        comm: the ranks that take part; "auto": those that the launcher started; None: those that a
            launcher such as torchrun started on this machine, see `PartialAllreduce`.
        waits: timeout, stall_warning and transport, see `wagma.algorithms.Algorithm`.

    Raises:
        TypeError: `model` is no module.
        ValueError: a tensor cannot be written (the message names it), or the ranks have different
            models; on every rank.
    """
    broadcast_tensors(Ranks(comm, **waits), tensors_of(model))


def tensors_of(
    model: torch.nn.Module, without: Iterable[torch.Tensor] = ()
) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of `model` by name, except those in `without`.

    Raises:
        TypeError: `model` is no module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: it has to be a torch.nn.Module")
    left_out = set(without)
    named = chain(model.named_parameters(), model.named_buffers())
    return {name: tensor for name, tensor in named if tensor not in left_out}
