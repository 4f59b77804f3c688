"""What an algorithm asks of its collectives."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from wagma.collectives.stats import Stats

__all__ = ["Collective"]


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
