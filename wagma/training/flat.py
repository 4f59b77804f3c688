"""Parameters as views of one flat array, the form in which a collective averages them.

Averaging the model is then one call on one array, without gather and scatter. Each parameter starts
on a cache line, as in torch's own allocations, so that kernels that depend on alignment give the
same bits as before.
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
from torch.utils.dlpack import from_dlpack

# Bytes; what torch's CPU allocator aligns to.
ALIGNMENT = 64

DEVICES = ("cpu", "cuda")

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Slot:
    """Place of one tensor in a flat array."""

    offset: int  # number of elements before the tensor
    shape: tuple[int, ...]  # shape of the tensor
    # strides in elements; dense, in the tensor's own order of dimensions, so that channels_last
    # stays channels_last
    stride: tuple[int, ...]

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the tensor in this slot of `flat`, sharing the storage of `flat`."""
        return flat.as_strided(self.shape, self.stride, flat.storage_offset() + self.offset)

    def own(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the same memory, with a storage that covers the slot alone.

        ``torch.save`` and ``copy.deepcopy`` copy whole storages: a part of a model then copies
        nothing but itself.
        """
        part = from_dlpack(flat[self.offset : self.offset + self.numel])
        return part.as_strided(self.shape, self.stride)

    @property
    def numel(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a list of parameters in one flat array."""

    slots: tuple[Slot, ...]  # one per parameter, in order
    numel: int  # elements of the flat array, including the padding between parameters
    dtype: torch.dtype  # dtype of all parameters
    device: torch.device  # the CPU, or the GPU that has all of them

    @classmethod
    def of(cls, parameters: Sequence[torch.Tensor]) -> Layout:
        """Lay out `parameters` one after the other.

        Raises:
            ValueError: the list is empty, a parameter is not on the common device, the CPU or a
                GPU, or not of the common supported dtype, or parameters share memory; the message
                names the parameter and the remedy.
        """
        if not parameters:
            raise ValueError(
                "the optimizer has no parameters: give it those of a model, "
                "as in torch.optim.SGD(model.parameters(), lr=0.1)"
            )
        dtype, device = parameters[0].dtype, parameters[0].device
        for index, parameter in enumerate(parameters):
            _check_supported(index, parameter, dtype, device)
        _check_disjoint(parameters)
        step = max(1, ALIGNMENT // dtype.itemsize)
        slots = []
        offset = 0
        for parameter in parameters:
            stride = torch.empty_like(parameter, device="meta").stride()
            slots.append(Slot(offset, tuple(parameter.shape), tuple(stride)))
            offset += -(-parameter.numel() // step) * step
        return cls(tuple(slots), offset, dtype, device)

    def part(self, first: int, end: int) -> Layout:
        """Return the layout of the parameters from `first` up to, not including, `end`."""
        start, stop = self.span(first, end)
        slots = (replace(slot, offset=slot.offset - start) for slot in self.slots[first:end])
        return replace(self, slots=tuple(slots), numel=stop - start)

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Return (start, stop) of the elements of the parameters from `first` up to `end`."""
        starts = [slot.offset for slot in self.slots[first : end + 1]]
        return starts[0], starts[end - first] if end < len(self.slots) else self.numel

    def describe(self) -> list[str]:
        """Return one line per parameter: dtype, kind of device unless the CPU, shape, strides."""
        kind = str(self.dtype).removeprefix("torch.")
        if self.device.type != "cpu":
            kind += f" on {self.device.type}"
        return [f"{kind} {list(slot.shape)} stride {list(slot.stride)}" for slot in self.slots]

    def fingerprint(self) -> str:
        """Return a hash that is equal on two ranks if their layouts are equal."""
        return hashlib.sha256("\n".join(self.describe()).encode()).hexdigest()


def _check_supported(
    index: int, parameter: torch.Tensor, dtype: torch.dtype, device: torch.device
) -> None:
    if _is_sharded(parameter):
        raise ValueError(
            f"parameter {index} is sharded by FSDP: each rank has another part, and averaging "
            "would mix the parts; train the unwrapped model, without fully_shard() or "
            "FullyShardedDataParallel()"
        )
    if parameter.device.type == "meta":
        raise ValueError(
            f"parameter {index} is on meta, without values: give the model memory with "
            "model.to_empty(device='cpu') and initialise it before the optimizer is made"
        )
    if parameter.device.type not in DEVICES:
        raise ValueError(
            f"parameter {index} is on {parameter.device}: only parameters in the memory of the CPU "
            "or of an NVIDIA GPU can be averaged; call model.cpu() before the optimizer is made"
        )
    if parameter.device != device:
        raise ValueError(
            f"parameter {index} is on {parameter.device} and parameter 0 on {device}: one array "
            f"holds them all; move the model to one device, as in model.to({str(device)!r}), or "
            "give the parameters of each device an optimizer of their own"
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
    if parameter.device.type == "cpu" and parameter.untyped_storage().is_shared():
        raise ValueError(
            f"parameter {index} is in memory that share_memory() shares with other processes, and "
            "training would move it out: train a copy, as copy.deepcopy(model)"
        )
    if parameter.dtype != dtype:
        raise ValueError(
            f"parameter {index} is of {parameter.dtype} and parameter 0 of {dtype}: one array "
            "holds them all; convert the model to one dtype, as in model.float(), or give each "
            "dtype its own optimizer"
        )


def _is_sharded(parameter: torch.Tensor) -> bool:
    """Return whether FSDP shards it: a DTensor, a flat parameter, or a view of one."""
    module = sys.modules.get("torch.distributed.tensor")  # imported wherever a DTensor exists
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
        parameters: dense tensors of one floating dtype on one device. They keep their values, and
            ``.data`` becomes a view of `flat`.
        layout: `Layout.of(parameters)`.

    Attributes:
        flat: 1-d tensor of `layout.numel` elements, without gradient; the padding is zero. `move`
            replaces it.

    Not thread-safe.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], layout: Layout) -> None:
        self.parameters = tuple(parameters)
        self.layout = layout
        self.flat = torch.zeros(layout.numel, dtype=layout.dtype, device=layout.device)
        views = self._views()
        for parameter, view in zip(self.parameters, views, strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        self._addresses = [view.data_ptr() for view in views]

    def _views(self) -> list[torch.Tensor]:
        return [slot.own(self.flat) for slot in self.layout.slots]

    def written(self) -> None:
        """Tell autograd that `flat` was written, so that no older graph uses the new values.

        Autograd cannot notice, because the parameters have version counters of their own.
        """
        increment_version(self.parameters)

    def move(self, memory: torch.Tensor) -> None:
        """Copy the values to `memory`, which becomes the flat tensor.

        A parameter whose ``.data`` was replaced keeps its memory.

        Args:
            memory: 1-d tensor of `layout.numel` elements of the parameters' dtype and device.
        """
        memory.copy_(self.flat)
        self.flat = memory
        views = self._views()
        for parameter, view, address in zip(self.parameters, views, self._addresses, strict=True):
            if parameter.data_ptr() == address:
                parameter.data = view
        self._addresses = [view.data_ptr() for view in views]

    def check(self) -> None:
        """Check that every parameter is still in the flat tensor.

        Raises:
            RuntimeError: the ``.data`` of a parameter was replaced, so that averaging would miss
                it.
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
        """Check that `tensors`, those of the optimizer, are the parameters.

        Raises:
            RuntimeError: parameters were added, removed or replaced, so that averaging would miss
                some.
        """
        if len(tensors) != len(self.parameters) or not all(map(is_, tensors, self.parameters)):
            raise RuntimeError(
                f"the optimizer has {len(tensors)} parameters that are not the "
                f"{len(self.parameters)} which are averaged: its param_groups were changed after "
                "DistributedOptimizer was made. Undo that, and add parameters with "
                "DistributedOptimizer.add_param_group() on all ranks; for others instead of the "
                "old ones make a new DistributedOptimizer"
            )
