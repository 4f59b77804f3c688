"""Addresses of the ranks of a job on this machine: abstract Unix-domain sockets.

Rank 0 listens at the job's address while ranks meet. Besides, every rank binds an address of its
own at its first meeting and holds it until the process ends. A second process with the same rank,
from another job of the same name, cannot bind that address.

The kernel removes an abstract address with the last process that has it open, so that no address is
ever stale. Abstract addresses have no permissions: both sides ask the kernel for the user at the
other end, and prove that they know the job's key. (In a user namespace all unknown users share one
number.)
"""

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

_USER_MAP = Path("/proc/self/uid_map")
_UNKNOWN_USER = Path("/proc/sys/kernel/overflowuid")
_CLAIMS = 16  # so many other processes with this rank's number are noticed
_PROOF_BYTES = 64


def users_are_told_apart() -> bool:
    """Return whether the kernel distinguishes this process's user from all others.

    In a user namespace all users without a mapping have the same number.
    """
    try:
        unknown = int(_UNKNOWN_USER.read_text())
        known = _USER_MAP.read_text().split()
    except (OSError, ValueError):
        return True
    return os.getuid() != unknown or known == ["0", "0", str(2**32 - 1)]


def proof(job: Job, what: str, content: Any) -> str:
    """Return a digest of `content` that only a process with the job's key can compute."""
    text = json.dumps([what, content]).encode()
    key = b"secret of " + job.key.encode("utf-8", "surrogateescape")
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def is_proof(received: Any, expected: str) -> bool:
    """Return whether `received` is the expected proof."""
    return isinstance(received, str) and hmac.compare_digest(
        received.encode("utf-8", "replace"), expected.encode()
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
    """Return the next connection; None if it belongs to another user, or is closed.

    Raises:
        BlockingIOError: there is no connection.
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
    """Return a connection to rank 0; None if it does not listen, or its queue is full.

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
        """Return the process that could not claim this address, if there was one."""
        other = None
        for _ in range(_CLAIMS):
            try:
                end = accept(self._held)
            except OSError:
                break
            if end is None:
                continue
            with end, suppress(OSError):
                end.setblocking(False)
                received = end.recv(_PROOF_BYTES).decode("ascii", "replace")
                if is_proof(received, self._proof()):
                    other = credentials(end)[0]
        return other

    def close(self) -> None:
        """Release the address; so does the end of the process."""
        self._held.close()

    def _dispute(self, address: str) -> None:
        """Notify the holder, which calls `disputed_by` while its ranks meet for the first time."""
        with suppress(OSError):
            end = _connect(address)
            if end is not None:
                with end:
                    end.send(self._proof().encode())

    def _proof(self) -> str:
        return proof(self._job, "claim", self._job.rank)


def _address(job: Job) -> str:
    name = hashlib.sha256(job.key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"\0wagma-{os.getuid()}-{name}"


def _bind(address: str, backlog: int) -> socket.socket | None:
    """Return a socket that listens at `address`; None: another process has it."""
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
    """Return a connection that does not block; None: no process listens, or its queue is full."""
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
