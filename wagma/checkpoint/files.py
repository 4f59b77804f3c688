"""Files that exist completely or not at all, with a checksum."""

from __future__ import annotations

import errno
import os
import queue
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wagma.checkpoint.contents import safe_globals
from wagma.checkpoint.names import TEMPORARY

_EARLY = 1 << 24  # bytes after which to sync the written part to the disk
_PAGE = 4096
_PIECE = 1 << 19  # bytes that fit into a core's cache
_saving = threading.Lock()  # guards a process-wide option of torch


class DamagedError(Exception):
    """A file does not hold what was written."""


def make_folder(path: Path) -> None:
    """Create a folder that survives a crash, unless it exists.

    Raises:
        OSError: the folder cannot be created.
    """
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk.

    Raises:
        OSError: the sync fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system needs no sync
            raise
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and sync it to the disk, then replace any old file.

    Raises:
        OSError: the file cannot be written; an old file is unchanged.
    """

    def fill(descriptor: int) -> None:
        _write_all(descriptor, memoryview(content))

    _replace(path, fill)


def write_data(path: Path, value: object) -> tuple[int, str]:
    """Write a value as `torch.save` does, with the guarantees of `write_bytes`.

    Returns:
        The number of bytes and their checksum.

    Raises:
        OSError: the file cannot be written; an old file is unchanged.
    """
    sink: _Sink | None = None

    def fill(descriptor: int) -> None:
        nonlocal sink
        with _Sink(descriptor) as sink, _saving:
            computed = torch.serialization.get_crc32_options()
            # The checksum of the whole file is enough.
            torch.serialization.set_crc32_options(False)
            try:
                torch.save(value, sink)  # type: ignore[arg-type]
            except Exception as error:
                raise sink.error or error from error
            finally:
                torch.serialization.set_crc32_options(computed)

    _replace(path, fill)
    assert sink is not None
    return sink.checksum.bytes, sink.checksum.text()


def read_data(path: Path, size: int, checksum: str) -> dict[str, Any]:
    """Read what `write_data` wrote, without running code from the file.

    Raises:
        DamagedError: the file is missing or differs from what was written.
    """
    try:
        with path.open("rb") as file:
            present = os.fstat(file.fileno()).st_size
            if present != size:
                raise DamagedError(f"has {present} bytes, and {size} were written")
            known, piece = Checksum(), memoryview(bytearray(_PIECE))
            while count := file.readinto(piece):
                known.update(piece[:count])
            if known.text() != checksum:
                raise DamagedError(f"has checksum {known.text()}, and {checksum} was written")
            file.seek(0)
            with torch.serialization.safe_globals(safe_globals()):
                loaded: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DamagedError("is missing") from error
    except DamagedError:
        raise
    except Exception as error:  # torch raises many types
        lines = f"{type(error).__name__}: {error}".splitlines()
        raise DamagedError(f"cannot be read: {lines[0]}") from error
    return loaded


def _replace(path: Path, fill: Callable[[int], None]) -> None:
    """Fill a temporary file, and rename it to `path` when it is on the disk."""
    new = path.with_name(path.name + TEMPORARY)
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o666)
    try:
        try:
            fill(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    sync_folder(path.parent)


def _write_all(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


class _Sink:
    """A file for `torch.save` that a thread syncs to the disk while it is written.

    `write` raises no exception, because torch's writer in C++ would not survive one.

    Args:
        descriptor: descriptor of the file.

    Attributes:
        checksum: checksum of the written bytes.
        error: the first exception of a write or sync.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.checksum = Checksum()
        self.error: BaseException | None = None
        self._to_sync: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._sync)

    def _sync(self) -> None:
        while self._to_sync.get():
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:  # Linux reports it once: the last fsync may succeed
                self.error = self.error or error

    def __enter__(self) -> _Sink:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._to_sync.put(False)
        self._thread.join()
        if kind is None and self.error is not None:
            raise self.error

    def write(self, content: memoryview) -> int:
        """Write bytes, which the caller may change afterwards."""
        size = len(content)
        if self.error is None:
            try:
                self._write(content)
            except BaseException as error:
                self.error = error
        return size

    def _write(self, content: memoryview) -> None:
        before = self.checksum.bytes
        while content:  # the second use of a piece reads the cache
            piece, content = content[:_PIECE], content[_PIECE:]
            self.checksum.update(piece)
            _write_all(self._descriptor, piece)
        if before // _EARLY != self.checksum.bytes // _EARLY:
            self._to_sync.put(True)

    def flush(self) -> None:
        """Do nothing; `torch.save` calls it."""


class Checksum:
    """The crc32 of the sums of all pages.

    A page is 4096 bytes, the last one padded with zeros. Its sum is that of its 64-bit
    little-endian words modulo 2**64. This detects what disks and networks do: a change of one word
    in a page, zeroed or stale pages or sectors, reordered pages; random content with probability
    1 - 2**-32. It does not protect against deliberate manipulation.

    Attributes:
        bytes: number of bytes added.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._crc = 0
        self._rest = b""  # bytes of the incomplete last page

    def update(self, content: memoryview) -> None:
        """Add bytes."""
        self.bytes += len(content)
        if self._rest:
            missing = _PAGE - len(self._rest)
            self._rest += bytes(content[:missing])
            content = content[missing:]
            if len(self._rest) < _PAGE:
                return
            self._crc = _fold(memoryview(self._rest), self._crc)
            self._rest = b""
        whole = len(content) // _PAGE * _PAGE
        if whole:
            self._crc = _fold(content[:whole], self._crc)
        self._rest = bytes(content[whole:])

    def text(self) -> str:
        """Return the kind and the value of the checksum."""
        crc = self._crc
        if self._rest:
            crc = _fold(memoryview(self._rest.ljust(_PAGE, b"\0")), crc)
        return f"pages4096-crc32:{crc:08x}"


def _fold(pages: memoryview, crc: int) -> int:
    words = np.frombuffer(pages, "<u8").reshape(-1, _PAGE // 8)
    sums = np.add.reduce(words, axis=1, dtype=np.uint64)
    return zlib.crc32(sums.astype("<u8", copy=False).tobytes(), crc)
