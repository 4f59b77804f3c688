"""Parameters and gradients as one flat array each, the form in which a collective takes them.

A model's parameters become views of one tensor, so that averaging the model is one call on one
array and nothing is gathered or scattered around it. Each parameter starts on a cache line, as it
does when torch allocates it: kernels that depend on alignment give the same bits as before.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import is_
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

__all__ = ["FlatGradients", "FlatParameters", "Layout", "Slot"]

# Bytes; what torch's CPU allocator aligns to.
ALIGNMENT = 64

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


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
        """The tensor in this slot of `flat`, which it shares the memory of."""
        return flat.as_strided(self.shape, self.stride, flat.storage_offset() + self.offset)


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
        raise ValueError(
            f"parameter {index} is of {parameter.dtype}: supported are {names}; "
            "convert the model, as in model.float()"
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
        return [slot.view(self.flat) for slot in self.layout.slots]

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


class FlatGradients:
    """Gradients that lie in one flat tensor, with what the ranks have to agree on beside them.

    As soon as autograd has a parameter's gradient, a hook puts it into its slot and makes it the
    parameter's ``.grad``: the collective then reduces it in place. Behind the slots there is one
    element per parameter, 1 where this rank has a gradient, and one for the loss: the mean says
    which parameters have a gradient on any rank (the others keep ``grad = None``, and the optimizer
    skips them everywhere alike), and what loss a line search has to see on every rank.

    Args:
        parameters: the parameters that the gradients are of.
        memory: 1-d tensor of `size_for(parameters.layout)` elements of the parameters' dtype.

    Not thread-safe.
    """

    @staticmethod
    def size_for(layout: Layout) -> int:
        """Elements of `memory` for parameters that lie like `layout`."""
        return layout.numel + len(layout.slots) + 1

    def __init__(self, parameters: FlatParameters, memory: torch.Tensor) -> None:
        layout = parameters.layout
        self.memory = memory
        self._parameters = parameters.parameters
        self._views = [slot.view(memory) for slot in layout.slots]
        self._present = memory[layout.numel : -1]
        self._loss = memory[-1:]
        self._hooks: list[RemovableHandle] = []
        memory.zero_()
        for index, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                self._place(index, parameter)
            if parameter.requires_grad:
                register: Any = parameter.register_post_accumulate_grad_hook
                self._hooks.append(register(partial(self._place, index)))

    def _place(self, index: int, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        view = self._views[index]
        if gradient is view or gradient is None:
            return
        if gradient.layout != torch.strided:
            raise ValueError(
                f"the gradient of parameter {index} has layout {gradient.layout}: only dense "
                "gradients can be averaged; make the embedding with sparse=False"
            )
        with torch.no_grad():
            view.copy_(gradient)
        parameter.grad = view

    def collect(self, loss: float | torch.Tensor | None) -> None:
        """Makes `memory` this rank's contribution.

        Args:
            loss: of this evaluation, a number or a tensor of one element; None counts as 0.
        """
        present = []
        for index, parameter in enumerate(self._parameters):
            self._place(index, parameter)  # gradients that were assigned and not accumulated
            present.append(parameter.grad is not None)
            if parameter.grad is None:
                self._views[index].zero_()
        self._present.copy_(torch.tensor(present))
        self._loss.fill_(loss.item() if isinstance(loss, torch.Tensor) else loss or 0.0)

    def distribute(self) -> float:
        """Makes the averages in `memory` the parameters' gradients; returns the averaged loss."""
        present = (self._present > 0).tolist()
        for parameter, view, anywhere in zip(self._parameters, self._views, present, strict=True):
            parameter.grad = view if anywhere else None
        return self._loss.item()

    def detach(self) -> None:
        """Ends the placing of gradients; those in place keep their values in own memory."""
        for hook in self._hooks:
            hook.remove()
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is view:
                parameter.grad = view.clone()
