"""Errors of wagma.collectives.

Every error of the engine is a `WagmaError` and also the closest built-in exception, so that
``except TimeoutError`` works as well as ``except StallError``. A wrong argument is a plain
`ValueError` or `TypeError`, exhausted private memory a `MemoryError`.
"""


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
    """The ranks disagree on the creation arguments, the versions of `sync` or the quorums."""


class QuorumMismatchError(MismatchError):
    """The ranks called a version with different quorums; the message names two ranks and theirs.

    Every rank raises it, in its current call or in its next one, whatever version that calls.
    """


class HandleError(WagmaError, RuntimeError):
    """The handle cannot be used.

    The handle is closed, broken by an earlier error, in use by another thread, or inherited through
    a fork.
    """


class SegmentError(WagmaError, OSError):
    """The shared memory is not available; `errno` is ENOSPC where /dev/shm is too small."""


class DeviceError(WagmaError, RuntimeError):
    """A GPU, its driver or NVRTC is not available, or reported an error.

    The message has its words. A handle is unusable afterwards.
    """


class TransportError(WagmaError, RuntimeError):
    """MPI reported an error, which the message quotes, or MPI was finalized before the handle.

    The handle is unusable afterwards.
    """
