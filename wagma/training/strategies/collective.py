"""What an algorithm asks of its collectives."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from wagma.collectives.stats import Stats

__all__ = ["Collective", "close_all", "threads_may_call"]


class Collective(Protocol):
    """What all collectives have, whatever they compute.

    Attributes:
        hint: what warnings about waits that last say besides.
    """

    hint: str | None

    @property
    def version(self) -> int:
        """The next version that this rank calls."""
        ...

    @property
    def transport(self) -> str:
        """What the ranks talk through, "shm" or "mpi"."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed, or has failed."""
        ...

    def stats(self) -> Stats:
        """Counters of this rank, and of all as of the last version that all took part in."""
        ...

    def lost(self) -> list[int]:
        """The ranks that are known to have failed or died; does not wait."""
        ...

    def close(self) -> None:
        """Leaves it."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


def threads_may_call(collective: Collective) -> bool:
    """Return whether a thread may call it while another one calls another collective."""
    if collective.transport != "mpi":
        return True
    from mpi4py import MPI  # where MPI carries the messages, it is there

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def close_all(collectives: Sequence[Collective]) -> None:
    """Leave all of them; over MPI at once, where each returns when all ranks have left it.

    One after the other, a rank that leaves early would be in the first while the others wait for it
    in the second.
    """
    first, *rest = collectives
    if first.transport != "mpi" or not threads_may_call(first):
        for collective in collectives:
            collective.close()
        return
    others = [threading.Thread(target=collective.close) for collective in rest]
    for other in others:
        other.start()
    first.close()
    for other in others:
        other.join()
