"""Safe writing of files into folders in which other users may write.

Another user may have planted a link there to a file of this user. So content goes into a new file
with a random name, which then replaces whatever has the wanted name.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_ROOT = 0


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file; readers never see half of it.

    A link is followed if its owner is this user or root. A device or a pipe, such as /dev/stdout,
    is written in place. A file of this user keeps its permissions.

    Raises:
        OSError: the file cannot be written.
    """
    data = content if isinstance(content, bytes) else content.encode()
    if _is_device(path):
        path.write_bytes(data)
        return
    target, new, descriptor = _new(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if (mode := _own_mode(target)) is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
        new.replace(target)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def check_writable(path: Path) -> None:
    """Check that `write_file` could write there, and leave nothing behind.

    Raises:
        OSError: `write_file` could not write.
    """
    if _is_device(path):
        return
    _, new, descriptor = _new(path)
    os.close(descriptor)
    new.unlink()


def _new(path: Path) -> tuple[Path, Path, int]:
    """Return the path to replace, and the path and the descriptor of a new file beside it."""
    target = Path(os.path.realpath(path)) if _is_trusted_link(path) else path
    if target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    new = target.with_name(f".{target.name[:200]}-{os.urandom(8).hex()}")
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
    try:
        return target, new, os.open(new, flags, 0o666)
    except OSError as error:
        error.filename = str(path)  # that the user knows
        raise


def _own_mode(path: Path) -> int | None:
    """Return the permissions of this user's file at `path`; None: there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return stat.S_IMODE(found.st_mode) & 0o777 if is_own else None


def _is_trusted_link(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISLNK(found.st_mode) and found.st_uid in (_ROOT, os.geteuid())


def _is_device(path: Path) -> bool:
    """Return whether this is something that cannot be replaced: a device, a pipe, /dev/stdout."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            if not _is_trusted_link(path):
                return False
            if path.parts[:2] in (("/", "proc"), ("/", "dev")) and path.parts[2:3] != ("shm",):
                return True
            found = path.stat()
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))
