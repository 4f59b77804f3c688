"""The interface that an algorithm needs of its collectives."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from wagma.collectives.stats import Stats


class Collective(Protocol):
    """Interface of all collectives."""

    hint: str | None  # text that is added to warnings about stuck waits

    @property
    def version(self) -> int:
        """The next version that this rank calls."""
        ...

    @property
    def transport(self) -> str:
        """The transport, "shm" or "mpi"."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the collective was closed or has failed."""
        ...

    def stats(self) -> Stats:
        """Return counters of this rank, and of all ranks as of their last common version."""
        ...

    def lost(self) -> list[int]:
        """Return the ranks known to have failed or died; does not wait."""
        ...

    def close(self) -> None:
        """Leave the collective."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


def threads_may_call(collective: Collective) -> bool:
    """Return whether one thread may call it while another thread calls another collective."""
    if collective.transport != "mpi":
        return True
    from mpi4py import MPI  # importable where the transport is MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def close_all(collectives: Sequence[Collective]) -> None:
    """Leave all collectives, over MPI concurrently.

    Over MPI `close` returns when all ranks have left. If ranks closed one collective after the
    other, a rank that leaves early would wait in the first while others wait for it in the second.
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
