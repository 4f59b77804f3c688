"""Shared libraries in this process: which MPIs are loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["are_several", "mapped", "mpi_libraries", "several_mpis"]

_MPI = ("libmpi.so", "libmpi_abi.so", "libmpich.so", "libmpi_cray.so")
_MAPS = Path("/proc/self/maps")


def mapped(*names: str) -> list[str]:
    """Return the files in this process's memory whose names begin with one of these."""
    paths = set()
    for line in _MAPS.read_text(errors="surrogateescape").splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith(names):
            paths.add(f"/{path}")
    return sorted(paths)


def mpi_libraries() -> list[str]:
    """Return the files of MPIs that are loaded."""
    return mapped(*_MPI)


def are_several(paths: Sequence[str]) -> bool:
    """Return whether these are files of more than one MPI; one may consist of several.

    Debian has all MPIs in one folder: libmpi.so.40 is Open MPI's there, libmpich.so.12 MPICH's.
    """
    folders = {Path(path).parent for path in paths}
    names = (re.match(r"libmpi(?:ch|_cray)?\.so\.(\d+)", Path(path).name) for path in paths)
    return len(folders) > 1 or len({found[1] for found in names if found}) > 1


def several_mpis() -> str:
    """Return what is wrong where this process has more than one MPI; "": it has one, or none."""
    try:
        paths = mpi_libraries()
    except OSError:  # no /proc
        return ""
    if not are_several(paths):
        return ""
    return (
        f"several MPI libraries are in this process: {', '.join(paths)}. What one has started the "
        "other does not know, and takes its handles for what they are not. See which package loads "
        "the second one, and build that with the first; look at MPI4PY_LIBMPI, LD_PRELOAD and "
        "LD_LIBRARY_PATH"
    )
