"""Opening of the files of all ranks, or of none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from wagma.units import rank_list

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Meeting

__all__ = ["open_on_all"]

T = TypeVar("T")


def open_on_all(meeting: Meeting, function: Callable[[], T]) -> list[T]:
    """Return the results of `function` on all ranks, plain data; collective, ends the meeting.

    Raises:
        OSError: `function` raised OSError on a rank; on every rank.
        any other exception of `function` on a rank; on every rank.
    """

    def guarded() -> list[T | str | None]:
        try:
            return [function(), None]
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            return [None, f"{name}{error.strerror or error}"]

    results = meeting.exchange(guarded, last=True)
    failed = {rank: text for rank, (_, text) in enumerate(results) if text is not None}
    if failed:
        raise OSError(f"{rank_list(sorted(failed))} cannot write: {failed[min(failed)]}")
    return [value for value, _ in results]
