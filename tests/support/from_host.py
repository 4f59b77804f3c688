"""Collectives of arrays on GPUs, which tests call as collectives of arrays of the host."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt


def on_gpu(kind: Any, array: Callable[[Any], Any], read: Callable[[Any], Any]) -> Any:
    """Return what makes collectives of a class as for arrays of the host, with arrays on a GPU.

    Args:
        kind: the class.
        array: makes an array on the GPU, with `set()` and `get()`.
        read: returns the elements of a result of the engine on the host.
    """

    def make(comm: Any, x: npt.NDArray[Any], *args: Any, **options: Any) -> FromHost:
        y = array(x)
        return FromHost(kind(comm, y, *args, **options), y, read)

    return make


@dataclass
class Posted:
    """A request whose array is copied back to the host when it is complete."""

    request: Any
    on_gpu: Any
    on_host: npt.NDArray[Any]

    def test(self) -> Any:
        outcome = self.request.test()
        if outcome is not None:
            self.on_host[...] = self.on_gpu.get()
        return outcome

    def wait(self, *timeout: Any, **options: Any) -> Any:
        outcome = self.request.wait(*timeout, **options)
        self.on_host[...] = self.on_gpu.get()
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request, name)


@dataclass
class Seen:
    """An outcome whose results are copied to the host."""

    outcome: Any
    results: tuple[Any, ...]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outcome, name)


class FromHost:
    """A collective of arrays on a GPU that is called with arrays of the host."""

    def __init__(self, coll: Any, x: Any, read: Callable[[Any], Any]) -> None:
        self._coll = coll
        self._x = x
        self._read = read

    def _call(self, call: Any, x: npt.NDArray[Any], weight: float) -> Seen:
        self._x.set(x)
        outcome = call(self._x, weight)
        x[...] = self._x.get()
        results = [None if one is None else self._read(one) for one in outcome.results]
        for one in filter(lambda one: one is not None, results):
            one.flags.writeable = False
        return Seen(outcome, tuple(results))

    def iallreduce(self, x: npt.NDArray[Any], weight: float = 1.0) -> "Posted":
        self._x.set(x)
        return Posted(self._coll.iallreduce(self._x, weight), self._x, x)

    def __enter__(self) -> "FromHost":
        self._coll.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._coll.__exit__(*error)

    def allreduce(self, x: npt.NDArray[Any], weight: float = 1.0) -> Seen:
        return self._call(self._coll.allreduce, x, weight)

    def sync(self, x: npt.NDArray[Any], weight: float = 1.0) -> Seen:
        return self._call(self._coll.sync, x, weight)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coll, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._coll, name, value)
