"""Where the ranks of a job on this machine find each other: abstract Unix-domain sockets.

Rank 0 listens at one while ranks meet. Besides, every rank holds one of its own from the first time
that it meets others of the job until it ends: a second process with its number, which belongs to
another job of the same name, finds it taken.

The kernel removes such an address with the last process that has it open, however that ends:
nothing is left behind, and nothing that is found is stale. Abstract addresses have no permissions,
so both sides ask the kernel for the other's user, and prove that they know the job's key: users who
are unknown to a user namespace all have one number there.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from .job import REMEDY, Job

__all__ = [
    "Claim",
    "accept",
    "call",
    "credentials",
    "listen",
    "proof",
    "same",
    "users_are_told_apart",
]

_USER_MAP = Path("/proc/self/uid_map")
_UNKNOWN_USER = Path("/proc/sys/kernel/overflowuid")
_CLAIMS = 16  # other processes with this rank's number that are noticed
_PROOF_BYTES = 64


def users_are_told_apart() -> bool:
    """Return whether the kernel tells this process's user from all others.

    In a user namespace that does not know them it gives all of them the same number.
    """
    try:
        unknown = int(_UNKNOWN_USER.read_text())
        known = _USER_MAP.read_text().split()
    except (OSError, ValueError):
        return True
    return os.getuid() != unknown or known == ["0", "0", str(2**32 - 1)]


def proof(job: Job, what: str, content: Any) -> str:
    """Return what only a process that knows the job's key can say of `content`."""
    text = json.dumps([what, content]).encode()
    key = b"secret of " + job.key.encode("utf-8", "surrogateescape")
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def same(said: Any, expected: str) -> bool:
    """Return whether what somebody said is the proof that was expected."""
    return isinstance(said, str) and hmac.compare_digest(
        said.encode("utf-8", "replace"), expected.encode()
    )


def listen(job: Job) -> socket.socket:
    """Return a socket that listens at the job's address and does not block.

    Raises:
        RuntimeError: another process has the address.
    """
    listener = _bind(_address(job), max(job.size, socket.SOMAXCONN))
    if listener is None:
        raise RuntimeError(
            f"{_holder(_address(job))} has the address at which the ranks of this job meet: end "
            f"it, or {REMEDY}"
        )
    return listener


def accept(listener: socket.socket) -> socket.socket | None:
    """Return the next connection; None if it is another user's, or gone.

    Raises:
        BlockingIOError: there is none.
        OSError: this process can open no more files.
    """
    end, _ = listener.accept()
    try:
        _, user = credentials(end)
    except OSError:
        user = -1
    if user == os.getuid():
        return end
    end.close()
    return None


def call(job: Job) -> socket.socket | None:
    """Return a connection to rank 0; None if it does not listen, or too many call it now.

    Raises:
        RuntimeError: another user's process has the address.
    """
    end = _connect(_address(job))
    if end is None:
        return None
    pid, user = credentials(end)
    if user != os.getuid():
        end.close()
        raise RuntimeError(f"process {pid} of user {user} has the address of this job: {REMEDY}")
    return end


class Claim:
    """The address that one rank of a job holds.

    Raises:
        RuntimeError: another process holds it.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        address = f"{_address(job)}-{job.rank}"
        held = _bind(address, _CLAIMS)
        if held is None:
            self._dispute(address)
            raise RuntimeError(
                f"RANK={job.rank} of this job is {_holder(address)} already: where that belongs to "
                f"another job, two jobs have one name, and you have to {REMEDY}"
            )
        self._held = held

    def disputed_by(self) -> int | None:
        """Return the process that was refused because of this claim, if there was one."""
        found = None
        for _ in range(_CLAIMS):
            try:
                end = accept(self._held)
            except OSError:
                break
            if end is None:
                continue
            with end, suppress(OSError):
                end.setblocking(False)
                said = end.recv(_PROOF_BYTES).decode("ascii", "replace")
                if same(said, self._said()):
                    found = credentials(end)[0]
        return found

    def close(self) -> None:
        """Give the address up; so does the end of the process."""
        self._held.close()

    def _dispute(self, address: str) -> None:
        """Tell the holder, which looks at it while its ranks meet for the first time."""
        with suppress(OSError):
            end = _connect(address)
            if end is not None:
                with end:
                    end.send(self._said().encode())

    def _said(self) -> str:
        return proof(self._job, "claim", self._job.rank)


def _address(job: Job) -> str:
    name = hashlib.sha256(job.key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"\0wagma-{os.getuid()}-{name}"


def _bind(address: str, backlog: int) -> socket.socket | None:
    """Return a socket that listens there; None: somebody else's does."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return listener


def _connect(address: str) -> socket.socket | None:
    """Return a connection that does not block; None: nobody listens, or too many wait there."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        end.setblocking(False)
        end.connect(address)
    except (ConnectionError, BlockingIOError):
        end.close()
        return None
    except BaseException:
        end.close()
        raise
    return end


def credentials(end: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end."""
    size = struct.calcsize("3i")
    pid, user, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, user


def _holder(address: str) -> str:
    try:
        end = _connect(address)
        if end is not None:
            with end:
                pid, user = credentials(end)
                return f"process {pid} of user {user}"
    except OSError:
        pass
    return "another process"
