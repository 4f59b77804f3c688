"""Creation of every kind of collective: the ranks compare options, then create their handles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from . import arrays
from ._engine import MEMORY, check_options
from .gpu_memory import choose_memory
from .options import OWN, CommonOptions
from .rendezvous.meeting import Comm, Meeting
from .rendezvous.patience import Patience

if TYPE_CHECKING:
    from ._engine import Channel, Handle, Segment

O = TypeVar("O", bound=CommonOptions)  # noqa: E741


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
        gpu: int | None = None

        def check() -> dict[str, object]:
            nonlocal options, engine, gpu
            options = read(arguments).with_environment()
            array = arrays.resolve(like, writable=False)
            count = math.prod(array.shape)
            values = options.engine(meeting.size, count, array.dtype.code, quorum=quorum)
            gpu = array.gpu
            engine = check_options(values)
            place = "host" if gpu is None else "GPU"
            common = {name: x for name, x in asdict(options).items() if name not in OWN}
            form = {"shape": array.shape, "dtype": array.dtype.name}
            return {**form, "memory of like": place, **common}

        meeting.agree(check)
        transport = meeting.transport(options.transport)
        if gpu is not None:
            graph = "graph" in asdict(options)
            memory = choose_memory(meeting, options, gpu, transport=transport, graph=graph)
            engine["memory"] = MEMORY[memory]
        meeting.join(transport, engine, lambda over: make(over, meeting, options))
    return options, engine
