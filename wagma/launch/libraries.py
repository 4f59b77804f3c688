"""The MPI libraries that are loaded into this process."""

import re
from collections.abc import Sequence
from pathlib import Path

_MPI = ("libmpi.so", "libmpi_abi.so", "libmpich.so", "libmpi_cray.so")
_MAPS = Path("/proc/self/maps")


def mapped(*names: str) -> list[str]:
    """Return the mapped files of this process whose names begin with one of `names`."""
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
    """Return what is wrong if this process has more than one MPI; "": nothing."""
    try:
        paths = mpi_libraries()
    except OSError:  # no /proc
        return ""
    if not are_several(paths):
        return ""
    return (
        f"several MPI libraries are in this process: {', '.join(paths)}. One does not know what "
        "the other has initialised, and misreads its handles. Find the package that loads the "
        "second one, and build it with the first; check MPI4PY_LIBMPI, LD_PRELOAD and "
        "LD_LIBRARY_PATH"
    )
