"""The state that a rank saves and loads."""

import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from wagma.checkpoint.manifest import Training
from wagma.training.optimizer import DistributedOptimizer

# Options of a collective that change the training's course.
_OPTIONS = (
    *("group_size", "grouping", "missed", "activation", "sync_period", "seed"),
    *("graph", "neighbors"),
)
_PARTS = ("model", "modules", "optimizer", "random", "extra")
_GENERATORS = ("python", "numpy", "torch", "cuda")


@runtime_checkable
class Stateful(Protocol):
    """An object whose state can be saved, and loaded into an equal object."""

    def state_dict(self) -> Any:
        """Return the state."""
        ...

    def load_state_dict(self, state: Any, /) -> Any:
        """Load a state."""
        ...


def name_objects(extra: Mapping[str, Stateful] | Iterable[Stateful]) -> dict[str, Stateful]:
    """Return the objects by name; those of a list are named by their classes.

    Raises:
        TypeError: an object lacks state_dict() or load_state_dict(), or a name is no string.
        ValueError: a list has two objects of a class.
    """
    if isinstance(extra, Mapping):
        found = dict(extra)
        wrong = [name for name in found if not isinstance(name, str)]
        if wrong:
            raise TypeError(f"extra has the name {wrong[0]!r}: names are strings")
    else:
        try:
            listed = list(extra)
        except TypeError:
            raise TypeError(
                f"extra is a {type(extra).__name__}: pass a dict of objects by name, or a list"
            ) from None
        found = {}
        for value in listed:
            name = type(value).__name__
            if name in found:
                raise ValueError(
                    f"extra has two objects of class {name}: give them names, as extra={{'first': "
                    "..., 'second': ...}"
                )
            found[name] = value
    lacking = [
        f"{name!r} is a {type(value).__name__}"
        for name, value in found.items()
        if not (
            callable(getattr(value, "state_dict", None))
            and callable(getattr(value, "load_state_dict", None))
        )
    ]
    if lacking:
        raise TypeError(
            f"extra: {', '.join(lacking)} without state_dict() and load_state_dict(): pass objects "
            "that have both"
        )
    return found


class Parts:
    """A training, as a state that can be saved and loaded.

    Args:
        optimizer: of the training.
        model: that it trains; None: only the parameters of the optimizer are saved.
        extra: other objects by name, see `name_objects`.

    Raises:
        TypeError: one is not what it should be.
        ValueError: the optimizer has parameters that are not the model's.

    Not thread-safe.
    """

    def __init__(
        self,
        optimizer: DistributedOptimizer,
        model: torch.nn.Module | None,
        extra: Mapping[str, Stateful] | Iterable[Stateful],
    ) -> None:
        if model is not None and not isinstance(model, torch.nn.Module):
            raise TypeError(f"model is a {type(model).__name__}: it has to be a torch.nn.Module")
        self.optimizer = optimizer
        self.model = model
        self.extra = name_objects(extra)
        if model is not None:
            known = set(model.parameters())
            others = sum(tensor not in known for tensor in self.parameters())
            if others:
                raise ValueError(
                    f"{others} parameters of the optimizer are not the model's, and would not be "
                    "saved: pass the model that the optimizer trains"
                )

    def parameters(self) -> list[torch.Tensor]:
        """Return the optimizer's parameters, in its order."""
        return [tensor for group in self.optimizer.param_groups for tensor in group["params"]]

    # ---- saving ----------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Return this rank's state; its tensors share memory with the training."""
        model = self.model_state()
        return {
            "model": dict(model),
            "modules": dict(getattr(model, "_metadata", {})),  # versions by module
            "optimizer": self.optimizer.state_dict(),
            "random": _random_state(),
            "extra": {name: value.state_dict() for name, value in self.extra.items()},
        }

    def model_state(self) -> dict[str, Any]:
        """Return the model's part of `state`."""
        if self.model is not None:
            return self.model.state_dict()
        return {f"parameter {i}": one.detach() for i, one in enumerate(self.parameters())}

    def training(self, model: dict[str, Any]) -> Training:
        """Return what must match when this state is loaded.

        Args:
            model: the model's part of `state`.
        """
        algorithm = self.optimizer.algorithm
        options = algorithm.options
        arguments = {
            name: repr(getattr(options, name)) for name in _OPTIONS if hasattr(options, name)
        }
        arguments |= {name: repr(value) for name, value in algorithm.made_with.items()}
        return Training(
            algorithm=type(algorithm).__name__,
            arguments=arguments,
            policy=type(self.optimizer._policy).__name__,
            inner=type(self.optimizer._inner).__name__,
            groups=[len(group["params"]) for group in self.optimizer.param_groups],
            tensors={
                name: f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
                for name, value in model.items()
                if isinstance(value, torch.Tensor)
            },
            extra=list(self.extra),
        )

    # ---- loading ---------------------------------------------------------------------------------
    def load_model(self, state: dict[str, Any], modules: dict[str, Any]) -> None:
        """Load the model, in place.

        Args:
            state: the model's part of `state`.
            modules: the modules' part of `state`, their versions.
        """
        if self.model is not None:
            versioned = OrderedDict(state)
            versioned._metadata = modules  # type: ignore[attr-defined]
            self.model.load_state_dict(versioned)
            return
        with torch.no_grad():
            for tensor, value in zip(self.parameters(), state.values(), strict=True):
                tensor.copy_(value)

    def load_extra(self, states: dict[str, Any]) -> None:
        """Load the other objects."""
        for name, value in self.extra.items():
            value.load_state_dict(states[name])


def lacking(state: dict[str, Any]) -> list[str]:
    """Return the names of the parts that `Parts.state` has and a saved state lacks."""
    missing = [name for name in _PARTS if name not in state]
    generators = state.get("random", dict.fromkeys(_GENERATORS))
    return missing + [f"random.{name}" for name in _GENERATORS if name not in generators]


def _random_state() -> dict[str, Any]:
    """Return the states of the random generators of Python, numpy and torch."""
    kind, key, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 (the global generator)
    assert isinstance(key, np.ndarray)
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": [kind, torch.from_numpy(key.astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if initialized else [],
    }


def load_random(state: dict[str, Any]) -> None:
    """Restore the random generators of Python, numpy and torch."""
    random.setstate(state["python"])
    kind, key, *rest = state["numpy"]
    np.random.set_state((kind, key.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    for device, numbers in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(numbers, device)
