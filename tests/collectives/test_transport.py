"""The extension that carries messages over MPI: which one is loaded, and what is refused."""

import gc
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from wagma.collectives import _engine, transport

pytestmark = [pytest.mark.mpi, pytest.mark.memory_only]


@pytest.fixture
def extension():
    return transport.load()


def refused(monkeypatch, **replaced) -> str:
    """What `load` says when the extension has these functions."""
    real = transport.load()
    names = ("TRANSPORT_ABI", "create", "library_version", "sizeof_comm", "is_initialized")
    fake = SimpleNamespace(**{name: getattr(real, name) for name in names})
    for name, value in replaced.items():
        setattr(fake, name, (lambda value=value: value) if callable(getattr(fake, name)) else value)
    monkeypatch.setattr(transport.importlib, "import_module", lambda *_: fake)
    with pytest.raises(ImportError) as caught:
        transport.load()
    return str(caught.value)


def test_extension_is_bound_to_the_mpi_of_mpi4py(extension):
    assert extension.library_version().strip("\0 \n") == MPI.Get_library_version().strip("\0 \n")
    assert extension.sizeof_comm() == MPI._sizeof(MPI.Comm)
    assert extension.is_initialized()


def test_only_one_mpi_is_in_the_process():
    """A second one would be loaded from the folder where the extension was linked."""
    transport.load()
    maps = Path("/proc/self/maps").read_text()
    libraries = set(re.findall(r"/\S*/libmpi(?:_abi)?\.so\S*", maps))
    assert len(libraries) == 1, libraries


def test_unused_transports_are_closed_alone(comm):
    """Ranks let go of theirs at different times; the next ones meet as if there had been none."""
    for _ in range(3):
        capsule = transport.connect(comm)
        assert "wagma_transport" in repr(capsule)
        if comm.rank == 0:
            comm.Barrier()
        del capsule
        gc.collect()
        if comm.rank != 0:
            comm.Barrier()


def test_transport_is_that_of_the_communicator(comm):
    half = comm.Split(comm.rank % 2)
    transports = [transport.connect(c) for c in (half, comm, MPI.COMM_SELF)]
    half.Free()
    assert len({id(t) for t in transports}) == 3


def test_handle_that_is_no_communicator_is_an_error(extension):
    with pytest.raises(RuntimeError, match="MPI_Comm_dup failed: "):
        extension.create(MPI.COMM_NULL.py2f())
    with pytest.raises(TypeError):
        extension.create("COMM_WORLD")


def test_other_size_of_handles_is_refused(monkeypatch):
    text = refused(monkeypatch, sizeof_comm=16)
    assert "an MPI_Comm has 16 bytes" in text
    assert_names_the_command(text)


def test_other_interface_of_transports_is_refused(monkeypatch):
    """Built from other sources than the engine; the number before there was one is 0."""
    text = refused(monkeypatch, TRANSPORT_ABI=0)
    assert "were built from different sources" in text
    assert f"interfaces are 0x0 and {_engine.TRANSPORT_ABI:#x}" in text
    assert_names_the_command(text)


def test_other_library_is_refused(monkeypatch):
    text = refused(monkeypatch, library_version="Other MPI 1.0\nof nowhere")
    assert "Other MPI 1.0" in text
    assert "nowhere" not in text
    assert_names_the_command(text)


def test_second_copy_of_the_library_is_refused(monkeypatch):
    text = refused(monkeypatch, is_initialized=False)
    assert "its MPI is initialized: False" in text
    assert_names_the_command(text)


def test_extension_that_was_not_built_is_told(monkeypatch):
    monkeypatch.setattr(transport, "_family", lambda _: "unheard_of")
    with pytest.raises(ImportError) as caught:
        transport.load()
    assert "built without the transport over MPI" in str(caught.value)
    assert "_mpi_unheard_of does not exist" in str(caught.value)
    assert_names_the_command(str(caught.value))


def test_extension_that_finds_no_library_is_told(monkeypatch):
    def import_module(*_):
        raise ImportError("libmpi.so.12: cannot open shared object file")

    monkeypatch.setattr(transport.importlib, "import_module", import_module)
    with pytest.raises(ImportError) as caught:
        transport.load()
    assert "cannot be loaded (libmpi.so.12: cannot open" in str(caught.value)
    assert_names_the_command(str(caught.value))


def assert_names_the_command(text: str) -> None:
    root = Path(transport.__file__).resolve().parents[1]
    mpi = MPI.Get_library_version().splitlines()[0].strip("\0 ")
    assert mpi in text
    assert f"WAGMA_MPICC={sys.prefix}/bin/mpicc {sys.executable} -m pip install " in text
    assert text.endswith(f"-e {root}")


@pytest.mark.parametrize(
    ("version", "family"),
    [
        ("Open MPI v5.0.11, package: ...", "openmpi"),
        ("IBM Spectrum MPI 10.4", "openmpi"),
        ("MPICH Version:      5.0.2\nMPICH Release date: ...", "mpich"),
        ("Intel(R) MPI Library 2021.9 for Linux* OS", "mpich"),
        ("MPI VERSION    : CRAY MPICH version 8.1.25.17", "mpich"),
        ("MVAPICH2 Version      :\t2.3.7", "mpich"),
    ],
)
def test_family_follows_from_what_the_library_says(version, family):
    assert transport._family(version) == family
