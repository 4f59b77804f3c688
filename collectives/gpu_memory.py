"""The choice where the engine keeps what arrays on GPUs contribute and result in.

"direct": on the GPUs, where ranks of one node open each other's memory. "staged": in host memory,
through which the engine copies; it works with every collective and every machine.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ._engine import Device
from .errors import DeviceError

if TYPE_CHECKING:
    from .options import CommonOptions
    from .rendezvous.meeting import Meeting

_log = logging.getLogger("wagma")


def choose_memory(
    meeting: Meeting, options: CommonOptions, gpu: int, *, transport: str, graph: bool
) -> str:
    """Return "direct" or "staged", the same on all ranks. Collective.

    Where GPUs do not reach each other's memory, one line of warning says which.

    Args:
        meeting: all ranks.
        options: in force, which are the same on all ranks.
        gpu: number of this rank's GPU.
        transport: of the handles, "shm" or "mpi".
        graph: whether the collective is one of neighbours.

    Raises:
        ValueError: ``memory="direct"`` is not possible.
        DeviceError, MemoryError: a GPU cannot be used, or is full.
        Each on all ranks.
    """
    if options.memory == "staged":
        return "staged"
    why = _never_direct(transport, graph=graph)
    if not why:
        why = _unreachable(meeting, gpu)
        if why and options.memory != "direct" and meeting.rank == 0:
            _log.warning(
                "%sarrays are copied through host memory (memory='staged'), because %s",
                "" if options.name is None else f"{options.name}: ",
                why,
            )
    if why and options.memory == "direct":

        def refuse() -> None:
            raise ValueError(
                f"memory='direct': {why}; leave memory (WAGMA_MEMORY) at 'auto', or pass 'staged'"
            )

        meeting.exchange(refuse)
    return "staged" if why else "direct"


def _never_direct(transport: str, *, graph: bool) -> str:
    """Return why the ranks cannot open each other's memory, whatever their GPUs; or nothing."""
    if graph:
        return "a collective with a graph keeps contributions in host memory"
    return "messages carry host memory" if transport == "mpi" else ""


def _unreachable(meeting: Meeting, gpu: int) -> str:
    """Return which rank does not reach the memory of which, and why; or nothing."""
    if meeting.size == 1:
        return ""
    opened: list[Device] = []

    def offer() -> tuple[list[int], str]:
        opened.append(Device(gpu))
        try:
            return opened[0].offer(), ""
        except DeviceError as error:
            return [], f"rank {meeting.rank}'s GPU shares no memory ({error})"

    offers = meeting.exchange(offer)
    if why := next(filter(None, (why for _, why in offers)), ""):
        return why

    def reach() -> str:
        for rank, (words, _) in enumerate(offers):
            said = "" if rank == meeting.rank else opened[0].reach(words)
            if said:
                return f"rank {meeting.rank}'s GPU does not reach that of rank {rank} ({said})"
        return ""

    return next(filter(None, meeting.exchange(reach)), "")
