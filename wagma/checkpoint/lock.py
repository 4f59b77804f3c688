"""One job at a time in a folder: a lock of the kernel's, gone when its process is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from wagma.checkpoint.errors import CheckpointError

__all__ = ["FolderLock", "read_token"]

LOCK = "lock"


@dataclass
class _Held:
    """A lock of this process.

    Attributes:
        descriptor: of the file; to close any other one of it would free the lock.
        token: that was written into it.
        users: how many have asked for it.
        last_run: largest number that was given to a run.
    """

    descriptor: int
    token: str
    users: int = 0
    last_run: int = 0


_guard = threading.Lock()
_held: dict[tuple[int, int], _Held] = {}
_owner = os.getpid()


def _mine() -> dict[tuple[int, int], _Held]:
    """Return the locks of this process: a forked child has inherited none."""
    global _owner
    if _owner != os.getpid():
        _owner = os.getpid()
        _held.clear()
    return _held


class FolderLock:
    """Keeps other jobs from a folder until `release`, or the end of the process.

    In one process it can be had several times.

    Args:
        folder: that exists.

    Attributes:
        token: what `read_token` finds on other hosts, if they see the same folder.
        shared: whether the file system knows locks.

    Raises:
        CheckpointError: another process has it.
        OSError: the file cannot be made.

    Thread-safe.
    """

    def __init__(self, folder: Path) -> None:
        self.shared = True
        with _guard:
            path = folder / LOCK
            path.touch()
            found = path.stat()
            self._key = (found.st_dev, found.st_ino)
            held = _mine().get(self._key)
            if held is None:
                held = self._acquire(path)
                _mine()[self._key] = held
            held.users += 1
            self.token = held.token
            self._process: int | None = os.getpid()

    def _acquire(self, path: Path) -> _Held:
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
            says = {"token": token, "process": os.getpid(), "host": socket.gethostname()}
            text = json.dumps(says).encode()
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return _Held(descriptor, token)

    def next_run(self, largest: int) -> int:
        """Return a number for a run that is larger than `largest` and those that were given."""
        with _guard:
            held = _mine()[self._key]
            held.last_run = max(held.last_run, largest) + 1
            return held.last_run

    def release(self) -> None:
        """Let other jobs into the folder; may be called again."""
        with _guard:
            held = _mine().get(self._key)
            if self._process != os.getpid() or held is None:
                return
            self._process = None
            held.users -= 1
            if held.users == 0:
                del _mine()[self._key]
                os.close(held.descriptor)


def read_token(folder: Path) -> str | None:
    """Return what the job that uses a folder has written; None: nothing.

    Not for the process that has the lock, which would lose it.
    """
    try:
        return str(json.loads((folder / LOCK).read_text())["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(descriptor: int) -> str:
    """Return who has the lock, as far as is known."""
    try:
        says = json.loads(os.pread(descriptor, 1 << 12, 0))
        return f" (process {says['process']} on {says['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
