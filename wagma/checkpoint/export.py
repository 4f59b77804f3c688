"""Export of the average model as one safetensors file."""

from pathlib import Path
from typing import Any

import torch

from wagma.checkpoint.errors import CheckpointError, together
from wagma.checkpoint.files import write_bytes
from wagma.checkpoint.parts import Parts
from wagma.training.ranks import Ranks


def export_mean(parts: Parts, path: Path) -> None:
    """Write the mean of the ranks' parameters; collective. See `Checkpointer.export`."""
    algorithm = parts.optimizer.algorithm

    def prepare() -> None:
        if algorithm.rank == 0:
            _safetensors()

    together(algorithm, prepare, f"export {path}")
    mean = algorithm.parameters.flat.detach().clone()
    Ranks.average(algorithm, mean)

    def write() -> None:
        if algorithm.rank == 0:
            tensors, aliases = _tensors(parts, mean)
            write_bytes(path, _safetensors().save(tensors, metadata={"format": "pt", **aliases}))

    together(algorithm, write, f"export {path}")


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError(
            "export() needs safetensors: python -m pip install safetensors"
        ) from error
    return safetensors.torch


def _tensors(parts: Parts, mean: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the model's tensors by name, and the written name of each tied one."""
    layout = parts.optimizer.algorithm.parameters.layout
    trained = {
        id(tensor): slot.view(mean)
        for tensor, slot in zip(parts.parameters(), layout.slots, strict=True)
    }
    if parts.model is None:
        named = {f"parameter {i}": tensor for i, tensor in enumerate(parts.parameters())}
    else:
        named = dict(parts.model.named_parameters(remove_duplicate=False))
        saved = parts.model.state_dict()
        buffers = parts.model.named_buffers(remove_duplicate=False)
        named |= {name: one for name, one in buffers if name in saved}
    tensors: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in named.items():
        if (known := first.setdefault(id(tensor), name)) != name:
            aliases[name] = known
            continue
        value = trained.get(id(tensor), tensor.detach())
        # The format does not allow tensors that share memory.
        tensors[name] = value.contiguous().clone()
    if "format" in tensors or "format" in aliases:
        raise CheckpointError("a tensor of the name 'format' cannot be exported: rename it")
    return tensors, aliases
