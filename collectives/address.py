"""Where the ranks of a job on this machine find each other: an abstract Unix-domain socket.

The kernel removes such an address with the last process that has it open, however that ends:
nothing is left behind, and nothing that is found is stale. Abstract addresses have no permissions,
so both sides ask the kernel for the other's user.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
import time
from multiprocessing.connection import Connection

from .job import Job

__all__ = ["accept", "call", "listen"]

_REMEDY = "give each job a name of its own in WAGMA_JOB"
_RETRY_S = 0.02


def listen(job: Job, seconds: float) -> socket.socket:
    """A socket that listens at the job's address, which an earlier meeting may still have.

    Args:
        job: whose address is taken.
        seconds: for which it is tried.

    Raises:
        RuntimeError: another process has the address.
    """
    began = time.monotonic()
    while True:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(_address(job))
            listener.listen(max(job.size, socket.SOMAXCONN))
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
        if time.monotonic() - began >= seconds:
            raise RuntimeError(
                f"{_holder(job)} is making a collective as rank 0 of a job of the same name: end "
                f"it, or {_REMEDY}"
            )
        time.sleep(_RETRY_S)


def accept(listener: socket.socket) -> Connection | None:
    """The next connection; None if it is another user's, or gone."""
    try:
        link, _ = listener.accept()
        _, uid = _credentials(link)
    except OSError:
        return None
    if uid != os.getuid():
        link.close()
        return None
    return Connection(link.detach())


def call(job: Job) -> Connection | None:
    """A connection to rank 0; None if it does not listen.

    Raises:
        RuntimeError: another user's process has the address.
    """
    try:
        link = _connect(job)
    except ConnectionError:
        return None
    pid, uid = _credentials(link)
    if uid != os.getuid():
        link.close()
        raise RuntimeError(f"process {pid} of user {uid} has the address of this job: {_REMEDY}")
    return Connection(link.detach())


def _address(job: Job) -> str:
    name = hashlib.sha256(job.key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"\0wagma-{os.getuid()}-{name}"


def _connect(job: Job) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(_address(job))
    except BaseException:
        link.close()
        raise
    return link


def _credentials(link: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def _holder(job: Job) -> str:
    try:
        with _connect(job) as link:
            pid, uid = _credentials(link)
    except OSError:
        return "another process"
    return f"process {pid} of user {uid}"
