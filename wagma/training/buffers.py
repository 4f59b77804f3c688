"""Averages of buffers, and broadcasts of tensors that the optimizer does not train."""

from collections.abc import Callable, Iterable, Mapping

import torch

from wagma.training.flat import DEVICES
from wagma.training.ranks import Ranks


def average_buffers(ranks: Ranks, buffers: Iterable[torch.Tensor]) -> None:
    """Average floating buffers over the ranks, and copy other buffers from rank 0; collective.

    The averages are summed in float64.

    Args:
        ranks: the ranks that train together.
        buffers: dense tensors on the CPU or on GPUs, as from ``model.buffers()``, of equal names,
            dtypes and shapes on all ranks; written in place.

    Raises:
        TypeError, ValueError: `buffers` has something else, or differs between the ranks; on every
            rank, and nothing is written.
    """

    def named() -> dict[str, torch.Tensor]:
        return {f"buffer {index}": tensor for index, tensor in enumerate(buffers)}

    tensors = _agree(ranks, named, "buffers", "; leave it out of buffers, or ")
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    if floating:
        packed = torch.cat([tensor.double().flatten().cpu() for tensor in floating])
        ranks.average(packed)
        _unpack(packed, [tensor.numel() for tensor in floating], floating)
    others = [tensor for tensor in tensors if not tensor.is_floating_point()]
    if others:
        _broadcast(ranks, others)


def broadcast_tensors(ranks: Ranks, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy named tensors from rank 0 to all ranks; collective.

    Raises:
        ValueError: a tensor cannot be written, or names, dtypes or shapes differ between the ranks;
            on every rank, and nothing is written.
    """
    checked = _agree(ranks, lambda: tensors, "models", ": ")
    if checked:
        _broadcast(ranks, checked)


def _agree(
    ranks: Ranks, named: Callable[[], Mapping[str, torch.Tensor]], what: str, then: str
) -> list[torch.Tensor]:
    """Return the tensors after checking that they are alike on all ranks; collective."""
    tensors: dict[str, torch.Tensor] = {}

    def describe() -> list[str]:
        tensors.update(named())
        return [_describe(name, tensor, then) for name, tensor in tensors.items()]

    with ranks.meet() as meeting:
        described = meeting.exchange(describe, last=True)
    differ = [rank for rank, theirs in enumerate(described) if theirs != described[0]]
    if differ:
        raise ValueError(
            f"the ranks have different {what}: those of ranks {differ} are not those of rank 0; "
            f"rank {differ[0]} has {_first_difference(described[differ[0]], described[0])}"
        )
    return [tensor.detach() for tensor in tensors.values()]


def _broadcast(ranks: Ranks, tensors: list[torch.Tensor]) -> None:
    packed = torch.cat([tensor.flatten().view(torch.uint8).cpu() for tensor in tensors])
    ranks.broadcast(packed)
    _unpack(packed, [tensor.nbytes for tensor in tensors], tensors)


def _unpack(packed: torch.Tensor, sizes: list[int], tensors: list[torch.Tensor]) -> None:
    for tensor, part in zip(tensors, torch.split(packed, sizes), strict=True):
        # Clone bytes: their offset may be no multiple of the element's size.
        values = part.clone().view(tensor.dtype) if packed.dtype == torch.uint8 else part
        tensor.copy_(values.view(tensor.shape))


def _first_difference(theirs: list[str], first: list[str]) -> str:
    for own, other in zip(theirs, first, strict=False):
        if own != other:
            return f"{own}, rank 0 {other}"
    return f"{len(theirs)}, rank 0 {len(first)}"


def _describe(name: str, tensor: torch.Tensor, then: str) -> str:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{name} is a {type(tensor).__name__}: pass tensors, as buffers=model.buffers()"
        )
    fault = _fault(tensor)
    if fault is not None:
        what, remedy = fault
        raise ValueError(f"{name} {what}, and cannot be written on all ranks{then}{remedy}")
    return f"{name}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _fault(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Return why a tensor cannot be copied as bytes, and the remedy; None if it can."""
    if tensor.device.type == "meta":
        return "is on meta, without values", "give it some, as in model.to_empty(device='cpu')"
    if tensor.device.type not in DEVICES:
        return f"is on {tensor.device}", "call model.cpu() first"
    if tensor.layout != torch.strided:
        return f"has layout {tensor.layout}", "store tensor.to_dense()"
    if tensor.is_quantized:
        return "is quantized", "store tensor.dequantize(), or tensor.int_repr()"
    if tensor.is_conj() or tensor.is_neg():
        return "is a view with a pending conj or neg", "store tensor.resolve_conj().resolve_neg()"
    if tensor.device.type == "cpu" and tensor.untyped_storage().is_shared():
        return "is in memory that share_memory() shares with other processes", (
            "train a copy, as copy.deepcopy(model)"
        )
    if tensor.is_inference():
        return "was made in inference_mode()", "store tensor.clone(), outside that mode"
    if any(n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride(), strict=True)):
        return "is expanded, so that elements share memory", "store tensor.clone()"
    return None
