"""Buffers of a model, such as BatchNorm's statistics, made equal on all ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from wagma.training.strategies import Algorithm

__all__ = ["average_buffers"]


def average_buffers(algorithm: Algorithm, buffers: Iterable[torch.Tensor]) -> None:
    """Floating buffers become the mean of the ranks', summed in float64, others rank 0's.

    Collective over all ranks of the algorithm's communicator.

    Args:
        algorithm: that the ranks train with.
        buffers: dense tensors on the CPU, as of ``model.buffers()``, alike on all ranks; written in
            place.

    Raises:
        TypeError, ValueError: they are something else, or differ between the ranks; on every rank,
            and nothing is written.
    """
    tensors: list[torch.Tensor] = []

    def describe() -> list[str]:
        tensors.extend(buffers)
        return [_describe(index, tensor) for index, tensor in enumerate(tensors)]

    with algorithm.meet() as meeting:
        described = meeting.exchange(describe, last=True)
    differ = [rank for rank, theirs in enumerate(described) if theirs != described[0]]
    if differ:
        raise ValueError(
            f"the ranks have different buffers: those of ranks {differ} are not those of rank 0; "
            f"rank {algorithm.rank} has {described[algorithm.rank]}, rank 0 {described[0]}"
        )
    floating = [tensor.detach() for tensor in tensors if tensor.is_floating_point()]
    if floating:
        _average(algorithm, floating)
    others = [tensor.detach() for tensor in tensors if not tensor.is_floating_point()]
    if others:
        _broadcast(algorithm, others)


def _average(algorithm: Algorithm, tensors: list[torch.Tensor]) -> None:
    packed = torch.cat([tensor.double().flatten() for tensor in tensors])
    algorithm.average(packed)
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, mean in zip(tensors, torch.split(packed, sizes), strict=True):
        tensor.copy_(mean.view(tensor.shape))


def _broadcast(algorithm: Algorithm, tensors: list[torch.Tensor]) -> None:
    packed = torch.cat([tensor.flatten().view(torch.uint8) for tensor in tensors])
    algorithm.broadcast(packed)
    sizes = [tensor.nbytes for tensor in tensors]
    for tensor, content in zip(tensors, torch.split(packed, sizes), strict=True):
        # Cloned: where it lies now may be no multiple of the element's size.
        tensor.copy_(content.clone().view(tensor.dtype).view(tensor.shape))


def _describe(index: int, tensor: torch.Tensor) -> str:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"buffer {index} is a {type(tensor).__name__}: pass tensors, as buffers=model.buffers()"
        )
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise ValueError(
            f"buffer {index} is on {tensor.device} and of layout {tensor.layout}: only dense ones "
            "in the CPU's memory can be averaged; leave it out of buffers"
        )
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
