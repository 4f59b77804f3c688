"""Errors of wagma.collectives.

Every error of the engine is a `WagmaError` and also the built-in exception that describes it best,
so that ``except TimeoutError`` works as well as ``except StallError``. A wrong argument is a plain
`ValueError` or `TypeError`, exhausted private memory a `MemoryError`.
"""

from __future__ import annotations

__all__ = [
    "HandleError",
    "MismatchError",
    "PeerError",
    "QuorumMismatchError",
    "SegmentError",
    "StallError",
    "TransportError",
    "WagmaError",
]


class WagmaError(Exception):
    """Base of the errors that only wagma raises."""


class StallError(WagmaError, TimeoutError):
    """`timeout` seconds passed in a wait; the message names version, phase and missing ranks.

    The handle is unusable afterwards, and this rank counts as failed.
    """


class PeerError(WagmaError, ConnectionError):
    """A rank that this call needs is dead or failed; the message names it.

    The handle is unusable afterwards, and this rank counts as failed.
    """


class MismatchError(WagmaError, ValueError):
    """The ranks disagree: other arguments at creation, `sync` at other versions, other quorums."""


class QuorumMismatchError(MismatchError):
    """The ranks called a version with different quorums; the message names two ranks and theirs.

    Every rank gets it, in its call then or in the next one: also in a call of another version.
    """


class HandleError(WagmaError, RuntimeError):
    """The handle cannot be used.

    It is closed, was broken by an earlier error, is being used by another thread, or was inherited
    through a fork.
    """


class SegmentError(WagmaError, OSError):
    """The shared memory could not be had; `errno` is ENOSPC where /dev/shm is too small."""


class TransportError(WagmaError, RuntimeError):
    """MPI refused something, the message has its words, or it was finalized before the handle.

    The handle is unusable afterwards.
    """
