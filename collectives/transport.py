"""The extension that carries messages over MPI: loads it, and makes transports with it.

The extension is compiled with an MPI's headers, so it exists once per family of MPIs:
`_mpi_openmpi` for Open MPI, `_mpi_mpich` for MPICH and the MPIs that share its handles (Intel MPI,
MVAPICH, Cray MPICH). An extension bound to another MPI than mpi4py's would misread handles; `load`
refuses it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from . import _engine
from .communicator import import_mpi

if TYPE_CHECKING:
    from mpi4py import MPI


class Extension(Protocol):
    """The functions of csrc/mpi/python/module.c."""

    TRANSPORT_ABI: int  # TRANSPORT_ABI of csrc/messages/transport.h at compile time

    def create(self, handle: int, /) -> Any:
        """Return a capsule with a transport over the communicator of this Fortran handle."""

    def library_version(self) -> str:
        """Return the version string of the MPI library that the extension is bound to."""

    def sizeof_comm(self) -> int:
        """Return the size of an MPI_Comm in bytes, as the extension was compiled."""

    def is_initialized(self) -> bool:
        """Return whether the MPI library that the extension is bound to is running."""


def connect(comm: MPI.Intracomm) -> Any:
    """Return a transport over the ranks of `comm`, in a capsule for `wagma_create_over()`.

    Collective: `load` must have succeeded on every rank.

    Raises:
        ImportError: see `load`.
        RuntimeError: MPI is not running, or refused a communicator.
    """
    return load().create(comm.py2f())


def load() -> Extension:
    """Return the extension for the MPI that mpi4py has loaded. Local.

    Raises:
        ImportError: it was not built, is bound to another MPI, or was built from other sources
            than the engine; the message says how to build it.
    """
    mpi = import_mpi()
    version = mpi.Get_library_version().strip("\0 \n")
    name = f"_mpi_{_family(version)}"
    try:
        module = importlib.import_module(f".{name}", __package__)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"wagma was built without the transport over MPI ({__package__}.{name} does not "
            f"exist). {_remedy(version)}"
        ) from error
    except ImportError as error:
        raise ImportError(
            f"{__package__}.{name} cannot be loaded ({error}). {_remedy(version)}"
        ) from error
    abi = getattr(module, "TRANSPORT_ABI", 0)  # 0: an extension from before this number existed
    if abi != _engine.TRANSPORT_ABI:
        raise ImportError(
            f"{__package__}.{name} and the engine were built from different sources: their "
            f"interfaces are {abi:#x} and {_engine.TRANSPORT_ABI:#x}. {_remedy(version)}"
        )
    extension = cast(Extension, module)
    if mismatch := _mismatch(extension, mpi, version):
        raise ImportError(
            f"{__package__}.{name} was built with another MPI: {mismatch}. {_remedy(version)}"
        )
    return extension


def _family(version: str) -> str:
    """Return the family, by handles, of the MPI with this version string."""
    return "openmpi" if "Open MPI" in version or "Spectrum MPI" in version else "mpich"


def _mismatch(extension: Extension, mpi: Any, version: str) -> str:
    """Return how the extension's MPI differs from mpi4py's; empty: they are the same."""
    pairs = (
        ("an MPI_Comm has {} bytes", extension.sizeof_comm(), mpi._sizeof(mpi.Comm)),
        ("it is bound to {!r}", extension.library_version().strip("\0 \n"), version),
        ("its MPI is initialized: {}", extension.is_initialized(), mpi.Is_initialized()),
    )
    for text, own, others in pairs:
        if own != others:
            return f"{text.format(_first_line(own))}, mpi4py's: {_first_line(others)!r}"
    return ""


def _first_line(value: object) -> object:
    return value.splitlines()[0] if isinstance(value, str) else value


def _remedy(version: str) -> str:
    """Return the command that builds the extension for this MPI."""
    root = Path(__file__).resolve().parents[1]
    compiler = Path(sys.prefix) / "bin/mpicc"
    build = (
        f"WAGMA_MPICC={compiler if compiler.exists() else 'mpicc'} {sys.executable} -m pip install "
        "--force-reinstall --no-deps"
    )
    first_line = _first_line(version)
    if (root / "setup.py").exists():
        return f"Build it with the compiler of mpi4py's MPI ({first_line}): {build} -e {root}"
    return (
        f"Build it with the compiler of mpi4py's MPI ({first_line}), in the root of wagma's "
        f"sources: {build} ."
    )
