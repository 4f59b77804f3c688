"""Files that are there as a whole or not at all, with a checksum."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from wagma.checkpoint.checksum import Checksum
from wagma.checkpoint.contents import safe_globals
from wagma.checkpoint.names import TEMPORARY

__all__ = ["DamagedError", "make_folder", "read_data", "sync_folder", "write_bytes", "write_data"]

_EARLY = 1 << 24  # bytes after which the disk begins to write
_PIECE = 1 << 19  # bytes that stay in a core's cache
_saving = threading.Lock()  # guards an option of torch, which is the process's


class DamagedError(Exception):
    """A file does not hold what was written."""


def make_folder(path: Path) -> None:
    """Make a folder that survives a crash, unless it is there.

    Raises:
        OSError: it cannot be made.
    """
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk.

    Raises:
        OSError: that fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that keep names anyway
            raise
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file and bring it to the disk; it takes the place of one that is there.

    Raises:
        OSError: it cannot be written; what was there is as before.
    """

    def fill(descriptor: int) -> None:
        _write_all(descriptor, memoryview(content))

    _replace(path, fill)


def write_data(path: Path, value: object) -> tuple[int, str]:
    """Write a value as `torch.save` does and bring it to the disk, as `write_bytes`.

    Returns:
        Its bytes and their checksum.

    Raises:
        OSError: it cannot be written; what was there is as before.
    """
    sink: _Sink | None = None

    def fill(descriptor: int) -> None:
        nonlocal sink
        with _Sink(descriptor) as sink, _saving:
            computed = torch.serialization.get_crc32_options()
            # The checksum of all is enough.
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
    """Read what `write_data` wrote; no code in the file is run.

    Raises:
        DamagedError: it is missing, or not what was written.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise DamagedError(f"has {found} bytes, and {size} were written")
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
    except Exception as error:  # whatever torch makes of such a file
        lines = f"{type(error).__name__}: {error}".splitlines()
        raise DamagedError(f"cannot be read: {lines[0]}") from error
    return loaded


def _replace(path: Path, fill: Callable[[int], None]) -> None:
    """Make a file, and give it its name when it is on the disk."""
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
    """A file for `torch.save`: the disk begins to write before the file is complete.

    No exception leaves `write`: torch's writer, which is C++, would not survive it.

    Args:
        descriptor: of the file.

    Attributes:
        checksum: of what was written.
        error: why not all was.
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
        """Write bytes, that may change when this returns."""
        size = len(content)
        if self.error is None:
            try:
                self._write(content)
            except BaseException as error:
                self.error = error
        return size

    def _write(self, content: memoryview) -> None:
        before = self.checksum.bytes
        while content:  # a piece is read from memory once, and then from the cache
            piece, content = content[:_PIECE], content[_PIECE:]
            self.checksum.update(piece)
            _write_all(self._descriptor, piece)
        if before // _EARLY != self.checksum.bytes // _EARLY:
            self._to_sync.put(True)

    def flush(self) -> None:
        """Do nothing: `torch.save` asks for it."""
