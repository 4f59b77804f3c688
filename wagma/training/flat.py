"""Parameters as one flat array, the form in which a collective takes them.

A model's parameters become views of one tensor, so that averaging the model is one call on one
array and nothing is gathered or scattered around it. Each parameter starts on a cache line, as it
does when torch allocates it: kernels that depend on alignment give the same bits as before.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import is_

import torch
from torch.autograd.graph import increment_version

__all__ = ["FlatParameters", "Layout", "Slot"]

# Bytes; what torch's CPU allocator aligns to.
ALIGNMENT = 64

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

# By bytes of an element; numpy has them all, and no bfloat16.
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one tensor lies in a flat array.

    Attributes:
        offset: elements before it.
        shape: its shape.
        stride: its strides in elements; dense, in the tensor's own order of dimensions, so that
            channels_last stays channels_last.
    """

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the tensor in this slot of `flat`, as a part of the storage of `flat`."""
        return flat.as_strided(self.shape, self.stride, flat.storage_offset() + self.offset)

    def own(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the same tensor with a storage of its own, which is the slot and nothing else.

        ``torch.save`` and ``copy.deepcopy`` take whole storages: a part of a model holds itself.
        """
        bits = flat.view(BITS[flat.itemsize]).numpy()[self.offset : self.offset + self.numel]
        return torch.from_numpy(bits).view(flat.dtype).as_strided(self.shape, self.stride)

    @property
    def numel(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a list of parameters lies in one flat array.

    Attributes:
        slots: one per parameter, in order.
        numel: elements of the flat array, the padding between parameters included.
        dtype: of every parameter.
    """

    slots: tuple[Slot, ...]
    numel: int
    dtype: torch.dtype

    @classmethod
    def of(cls, parameters: Sequence[torch.Tensor]) -> Layout:
        """Lays out `parameters` one after the other.

        Raises:
            ValueError: there are none, they are not all of one supported dtype on the CPU, or
                some share memory; the message names the parameter and the remedy.
        """
        if not parameters:
            raise ValueError(
                "the optimizer has no parameters: give it those of a model, "
                "as in torch.optim.SGD(model.parameters(), lr=0.1)"
            )
        dtype = parameters[0].dtype
        for index, parameter in enumerate(parameters):
            _check_supported(index, parameter, dtype)
        _check_disjoint(parameters)
        step = max(1, ALIGNMENT // dtype.itemsize)
        slots = []
        offset = 0
        for parameter in parameters:
            stride = torch.empty_like(parameter, device="meta").stride()
            slots.append(Slot(offset, tuple(parameter.shape), tuple(stride)))
            offset += -(-parameter.numel() // step) * step
        return cls(tuple(slots), offset, dtype)

    def part(self, first: int, end: int) -> Layout:
        """Return the layout of the parameters from `first` to before `end` alone, from 0 on."""
        start, stop = self.span(first, end)
        slots = (replace(slot, offset=slot.offset - start) for slot in self.slots[first:end])
        return Layout(tuple(slots), stop - start, self.dtype)

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return (start, stop) of the elements in which the parameters from `first` on lie."""
        starts = [slot.offset for slot in self.slots[first : end + 1]]
        return starts[0], starts[end - first] if end < len(self.slots) else self.numel

    def describe(self) -> list[str]:
        """One line per parameter: dtype, shape and strides."""
        dtype = str(self.dtype).removeprefix("torch.")
        return [f"{dtype} {list(slot.shape)} stride {list(slot.stride)}" for slot in self.slots]

    def fingerprint(self) -> str:
        """Equal on two ranks whose parameters lie alike in their flat arrays."""
        return hashlib.sha256("\n".join(self.describe()).encode()).hexdigest()


def _check_supported(index: int, parameter: torch.Tensor, dtype: torch.dtype) -> None:
    if _is_sharded(parameter):
        raise ValueError(
            f"parameter {index} is sharded by FSDP: each rank has another part, and averaging "
            "would mix them; train the model that was wrapped, without fully_shard() or "
            "FullyShardedDataParallel()"
        )
    if parameter.device.type == "meta":
        raise ValueError(
            f"parameter {index} is on meta, without values: give the model memory with "
            "model.to_empty(device='cpu') and initialise it before the optimizer is made"
        )
    if parameter.device.type != "cpu":
        raise ValueError(
            f"parameter {index} is on {parameter.device}: only parameters in the CPU's memory can "
            "be averaged; call model.cpu() before the optimizer is made"
        )
    if parameter.layout != torch.strided:
        raise ValueError(
            f"parameter {index} has layout {parameter.layout}: only dense parameters can be "
            "averaged; call parameter.to_dense()"
        )
    if parameter.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        if parameter.is_complex():
            remedy = "train pairs of real numbers, torch.view_as_real(parameter), in its place"
        elif parameter.is_floating_point():
            remedy = "convert the model, as in model.float()"
        else:
            remedy = "leave it out of the optimizer, which cannot train it"
        raise ValueError(
            f"parameter {index} is of {parameter.dtype}: supported are {names}; {remedy}, or give "
            "it an optimizer of its own, which is not averaged"
        )
    if parameter.untyped_storage().is_shared():
        raise ValueError(
            f"parameter {index} is in memory that share_memory() shares with other processes, and "
            "training would take it out: train a copy, as copy.deepcopy(model)"
        )
    if parameter.dtype != dtype:
        raise ValueError(
            f"parameter {index} is of {parameter.dtype} and parameter 0 of {dtype}: one array "
            "holds them all; convert the model to one dtype, as in model.float(), or give each "
            "dtype its own optimizer"
        )


def _is_sharded(parameter: torch.Tensor) -> bool:
    """Whether FSDP has it: a DTensor, a flat parameter or a view of one. DDP leaves no mark."""
    module = sys.modules.get("torch.distributed.tensor")  # imported, if there is a DTensor
    is_dtensor = module is not None and isinstance(parameter, module.DTensor)
    return is_dtensor or hasattr(parameter, "_fsdp_flattened")


def _check_disjoint(parameters: Sequence[torch.Tensor]) -> None:
    spans = sorted(
        (parameter.data_ptr(), index, parameter.numel() * parameter.itemsize)
        for index, parameter in enumerate(parameters)
        if parameter.numel() > 0
    )
    for (start, first, size), (other, second, _) in pairwise(spans):
        if start + size > other:
            raise ValueError(
                f"parameters {first} and {second} share memory: flattening would separate them; "
                "tie weights by assigning the same Parameter to both modules"
            )


class FlatParameters:
    """Parameters that are views of one flat tensor.

    Args:
        parameters: dense CPU tensors of one floating dtype; their values are kept, their ``.data``
            becomes a view of `flat`.
        layout: `Layout.of(parameters)`.

    Attributes:
        flat: 1-d tensor of `layout.numel` elements, without gradient; the padding is zero. Another
            one after `move`.

    Not thread-safe.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], layout: Layout) -> None:
        self.parameters = tuple(parameters)
        self.layout = layout
        self.flat = torch.zeros(layout.numel, dtype=layout.dtype)
        views = self._views()
        for parameter, view in zip(self.parameters, views, strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self._addresses = [view.data_ptr() for view in views]

    def _views(self) -> list[torch.Tensor]:
        return [slot.own(self.flat) for slot in self.layout.slots]

    def written(self) -> None:
        """Tell autograd that `flat` was written: a graph from before must not use the new values.

        Torch cannot see that, since the parameters' version counters are their own.
        """
        increment_version(self.parameters)

    def move(self, memory: torch.Tensor) -> None:
        """Makes `memory` the flat tensor, with the values of the one until now.

        A parameter that has been put elsewhere since stays there.

        Args:
            memory: 1-d tensor of `layout.numel` elements of the parameters' dtype.
        """
        memory.copy_(self.flat)
        self.flat = memory
        views = self._views()
        for parameter, view, address in zip(self.parameters, views, self._addresses, strict=True):
            if parameter.data_ptr() == address:
                parameter.data = view
        self._addresses = [view.data_ptr() for view in views]

    def check(self) -> None:
        """Checks that every parameter still lies where it was put.

        Raises:
            RuntimeError: the ``.data`` of one was replaced, so that averaging would miss it.
        """
        for index, (parameter, address) in enumerate(
            zip(self.parameters, self._addresses, strict=True)
        ):
            if parameter.data_ptr() != address:
                raise RuntimeError(
                    f"parameter {index} of shape {tuple(parameter.shape)} has left the flat array "
                    "that is averaged: its .data was assigned after DistributedOptimizer was made "
                    "(parameter.data = ..., model.to(dtype), model.half(), or a second "
                    "DistributedOptimizer). Write in place instead, as in parameter.copy_(value) "
                    "under torch.no_grad(), or convert the model first and make the optimizer last"
                )

    def check_are(self, tensors: Sequence[torch.Tensor]) -> None:
        """Checks that `tensors`, which the optimizer has, are the parameters.

        Raises:
            RuntimeError: they are more, less or others, which averaging would miss.
        """
        if len(tensors) != len(self.parameters) or not all(map(is_, tensors, self.parameters)):
            raise RuntimeError(
                f"the optimizer has {len(tensors)} parameters that are not the "
                f"{len(self.parameters)} which are averaged: its param_groups were changed after "
                "DistributedOptimizer was made. Undo that, and add parameters with "
                "DistributedOptimizer.add_param_group() on all ranks; for others instead of the "
                "old ones make a new DistributedOptimizer"
            )
