"""A lock of a folder for one job; the kernel releases it when the process ends."""

import errno
import fcntl
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wagma.checkpoint.errors import CheckpointError

LOCK = "lock"


@dataclass
class _HeldLock:
    """A lock that this process holds."""

    descriptor: int  # descriptor of the file; closing any other descriptor of it frees the lock
    token: str  # token written into the file
    users: int = 0  # number of `FolderLock` objects that share the lock
    last_run: int = 0  # largest number given to a run


_guard = threading.Lock()
_held: dict[tuple[int, int], _HeldLock] = {}
_dropped: deque["FolderLock"] = deque()  # locks that nobody uses any more, still to release


def _forget() -> None:
    """Begin anew in a forked child: it has neither the locks nor the threads of its parent."""
    global _guard
    _guard = threading.Lock()
    _held.clear()
    _dropped.clear()


os.register_at_fork(after_in_child=_forget)


@contextmanager
def _guarded() -> Iterator[None]:
    """Guard the locks of this process against other threads."""
    try:
        with _guard:
            yield
    finally:
        _free_dropped()


def _free_dropped() -> None:
    """Release what was dropped, unless a thread holds the guard: it calls this afterwards."""
    while _dropped and _guard.acquire(blocking=False):
        try:
            while _dropped:
                with suppress(OSError):  # the caller works on another lock
                    _dropped.popleft().free()
        finally:
            _guard.release()


class FolderLock:
    """Lock a folder against other jobs until `release`, or the end of the process.

    One process can lock a folder several times.

    Args:
        folder: an existing folder.

    Attributes:
        token: token that `read_token` returns on other hosts if they see the same folder.
        shared: whether the file system supports locks.

    Raises:
        CheckpointError: another process holds the lock.
        OSError: the lock file cannot be created.

    Thread-safe.
    """

    def __init__(self, folder: Path) -> None:
        self.shared = True
        with _guarded():
            path = folder / LOCK
            path.touch()
            status = path.stat()
            self._key = (status.st_dev, status.st_ino)
            held = _held.get(self._key)
            if held is None:
                held = self._acquire(path)
                _held[self._key] = held
            held.users += 1
            self.token = held.token
            self._process: int | None = os.getpid()

    def _acquire(self, path: Path) -> _HeldLock:
        token = os.urandom(8).hex()
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise CheckpointError(
                        f"{path.parent} is used by another job{_holder(descriptor)}: wait until it "
                        "has ended, or save into another folder"
                    ) from error
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                    raise
                self.shared = False
            owner = {"token": token, "process": os.getpid(), "host": socket.gethostname()}
            text = json.dumps(owner).encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return _HeldLock(descriptor, token)

    def next_run(self, largest: int) -> int:
        """Return a new run number, larger than `largest` and all numbers given before."""
        with _guarded():
            held = _held[self._key]
            held.last_run = max(held.last_run, largest) + 1
            return held.last_run

    def release(self) -> None:
        """Unlock the folder; may be called again."""
        with _guarded():
            self.free()

    def drop(self) -> None:
        """Unlock the folder without waiting for other threads; may be called again.

        The garbage collector may call it in the midst of another method of this class.
        """
        _dropped.append(self)
        _free_dropped()

    def free(self) -> None:
        """Give back this object's share of the lock; for callers that hold the module's guard."""
        held = _held.get(self._key)
        if self._process != os.getpid() or held is None:
            return
        self._process = None
        held.users -= 1
        if held.users == 0:
            del _held[self._key]
            os.close(held.descriptor)


def read_token(folder: Path) -> str | None:
    """Return the token of the job that uses a folder; None if there is none.

    The process that holds the lock must not call it: reading the file would free the lock.
    """
    try:
        return str(json.loads((folder / LOCK).read_text())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(descriptor: int) -> str:
    """Return the process and the host that hold the lock, if the file names them."""
    try:
        owner = json.loads(os.pread(descriptor, 1 << 12, 0))
        return f" (process {owner['process']} on {owner['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
