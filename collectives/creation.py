"""Creation of every kind of collective: the ranks compare options, then create their handles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from . import arrays
from ._engine import MEMORY_DEVICE, check_options
from .options import OWN, CommonOptions
from .rendezvous.meeting import Comm, Meeting
from .rendezvous.patience import Patience

if TYPE_CHECKING:
    from ._engine import Channel, Handle, Segment

O = TypeVar("O", bound=CommonOptions)  # noqa: E741


def _only_on_host(gpu: int | None, what: str) -> NotImplementedError:
    return NotImplementedError(
        f"like is {arrays.place(gpu)}, and {what} arrays in host memory only: pass a copy in host "
        "memory, as like.cpu(), and copy results back"
    )


def create(
    comm: Comm,
    like: Any,
    arguments: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], O],
    make: Callable[[Segment | Channel, Meeting, O], Handle],
    *,
    quorum: str = "quorum",
) -> tuple[O, dict[str, int | float]]:
    """Make a handle on every rank, or raise the same error on every rank. Collective.

    Args:
        comm: an intracommunicator, None or "auto".
        like: array that gives shape and dtype.
        arguments: keyword arguments of the user.
        read: converts the arguments to options.
        make: makes this rank's handle.
        quorum: the user's name of that option.

    Returns:
        The user's options and the engine's options, both with defaults filled in.
    """
    with Meeting(comm, Patience.of(arguments)) as meeting:
        options: O
        engine: dict[str, int | float]

        def check() -> dict[str, object]:
            nonlocal options, engine
            options = read(arguments).with_environment()
            array = arrays.resolve(like, writable=False)
            count = math.prod(array.shape)
            values = options.engine(meeting.size, count, array.dtype.code, quorum=quorum)
            memory = "host" if array.gpu is None else "GPU"
            if array.gpu is not None:
                if "graph" in values:
                    raise _only_on_host(array.gpu, "a collective with a graph exchanges")
                values["memory"] = MEMORY_DEVICE
            engine = check_options(values)
            common = {name: x for name, x in asdict(options).items() if name not in OWN}
            return {"shape": array.shape, "dtype": array.dtype.name, "memory": memory, **common}

        def refuse() -> None:
            raise _only_on_host(arrays.resolve(like, writable=False).gpu, "messages carry")

        meeting.agree(check)
        transport = meeting.transport(options.transport)
        if transport == "mpi" and engine["memory"] == MEMORY_DEVICE:
            meeting.exchange(refuse)
        meeting.join(transport, engine, lambda over: make(over, meeting, options))
    return options, engine
