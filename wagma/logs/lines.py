"""Files to which processes append lines: opened on all ranks, and surviving disk errors."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wagma.units import rank_list

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Meeting

T = TypeVar("T")
_MANY_BYTES = 1 << 16  # waiting bytes that are written at once
_MOST_BYTES = 1 << 20  # bytes that wait for a failing disk at most
_log = logging.getLogger("wagma")


def rank_file(folder: Path, rank: int, suffix: str) -> Path:
    """Return the file of a rank in a folder that all ranks share."""
    return folder / f"rank-{rank:05d}.{suffix}"


class LineFile:
    """A file to which lines are appended; an error of its disk is logged once and never raised.

    Lines wait in memory; the first `add` later than `flush_seconds` after the latest flush writes
    them. Lines that the disk refuses are tried again; if too many wait, new lines are dropped and
    counted. A forked process does not write the waiting lines of its parent.

    Args:
        path: path of the file; an unfinished line of an earlier process is ended.
        flush_seconds: 0: write every line at once.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, flush_seconds: float = 0.0) -> None:
        self.path = path
        self._flush_s = flush_seconds
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._flushed = time.monotonic()
        self._failed = False
        self._lost = 0
        self._process = os.getpid()
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            self._keep(b"\n")

    def add(self, line: str) -> None:
        """Append a line, given without its line break."""
        if os.getpid() != self._process:
            self._forget()
        if self._bytes > _MOST_BYTES:
            self._lost += 1
        else:
            self._keep(line.encode(errors="backslashreplace") + b"\n")
        many = self._bytes > _MANY_BYTES and not self._failed
        if many or time.monotonic() - self._flushed >= self._flush_s:
            self.flush()

    def flush(self) -> None:
        """Write waiting lines, if the disk accepts them."""
        if os.getpid() != self._process:
            self._forget()
        self._flushed = time.monotonic()
        if not self._waiting or self._descriptor < 0:
            return
        content = b"".join(self._waiting)
        written = 0
        try:
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
        except OSError as error:
            self._report(error)
        self._waiting, self._bytes = [], 0
        if written < len(content):
            self._keep(content[written:])
        elif self._failed and self._lost:
            lost, self._lost = self._lost, 0
            _log.warning("%s can be written again; %d lines are missing in it", self.path, lost)

    def close(self) -> None:
        """Write waiting lines and close the file; may be called again."""
        self.flush()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.close(descriptor)
        except OSError as error:
            self._report(error)

    def _keep(self, content: bytes) -> None:
        self._waiting.append(content)
        self._bytes += len(content)

    def _forget(self) -> None:
        """Leave waiting lines to the parent process."""
        self._process = os.getpid()
        self._waiting, self._bytes = [], 0

    def _report(self, error: OSError) -> None:
        if self._failed:
            return
        self._failed = True  # before logging, which may write to this file
        _log.error(
            "%s cannot be written: %s. The training goes on, and the lines are written later if "
            "possible",
            self.path,
            error.strerror or error,
        )


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
