"""Errors of one rank that every rank raises: their form in messages, and which of several."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...units import spans
from .. import errors

_ERRORS: dict[str, Callable[[str], Exception]] = {
    kind.__name__: kind
    for kind in (
        ValueError,
        RuntimeError,
        TypeError,
        MemoryError,
        NotImplementedError,
        ImportError,
        errors.MismatchError,
        errors.QuorumMismatchError,
        errors.HandleError,
        errors.StallError,
        errors.PeerError,
        errors.SegmentError,
        errors.TransportError,
        errors.DeviceError,
    )
}
# KeyboardInterrupt and its like: only this rank was interrupted, so the others raise PeerError.
_INTERRUPTED = "interrupted"
_ERRORS[_INTERRUPTED] = errors.PeerError
_CONSEQUENCES = (errors.PeerError.__name__, errors.StallError.__name__)


class Report(NamedTuple):
    """An exception in the form in which ranks send it."""

    kind: str
    code: int | None
    text: str

    @classmethod
    def of(cls, content: Any) -> Report:
        """Return the report that another rank sent as plain data.

        Raises:
            ValueError: it is something else.
        """
        if not (isinstance(content, (list, tuple)) and len(content) == len(cls._fields)):
            raise ValueError(f"{content!r} is no report")
        kind, code, text = content
        if not (isinstance(kind, str) and isinstance(text, str)):
            raise ValueError(f"{content!r} is no report")
        if code is not None and not isinstance(code, int):
            raise ValueError(f"{content!r} is no report")
        return cls(kind, code, text)


def report(error: BaseException) -> Report:
    """Return the report of this rank's exception for the other ranks."""
    kind = type(error).__name__
    if not isinstance(error, Exception):
        return Report(_INTERRUPTED, None, f"interrupted by {kind}")
    if isinstance(error, OSError) and error.errno is not None:
        text = error.strerror or errno.errorcode[error.errno]
        file = "" if error.filename is None else f": {error.filename}"
        return Report(kind, error.errno, text + file)
    return Report(kind, None, str(error) if kind in _ERRORS else f"{kind}: {error}")


def common_report(reports: Mapping[int, Report], size: int) -> Report:
    """Choose the report that all `size` ranks raise; its text names the ranks that sent it.

    A cause takes precedence over its consequences (PeerError, StallError), and a lower rank over a
    higher one.
    """
    first = min(reports, key=lambda rank: (reports[rank].kind in _CONSEQUENCES, rank))
    chosen = reports[first]
    same = [rank for rank, other in reports.items() if other == chosen]
    if len(same) == size:
        return chosen
    return chosen._replace(text=f"{describe_ranks(same)}: {chosen.text}")


def as_error(reported: Report) -> Exception:
    """Return the exception for a report."""
    if reported.kind == errors.SegmentError.__name__ and reported.code is not None:
        return errors.SegmentError(reported.code, reported.text)
    return _ERRORS.get(reported.kind, errors.WagmaError)(reported.text)


def describe_ranks(ranks: Sequence[int]) -> str:
    """Return "rank 3" or "ranks 0-2, 5" for ascending `ranks`."""
    text = spans(ranks)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
