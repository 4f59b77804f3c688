"""The C library as `make install` leaves it: symbols, soname, pkg-config, and a program on top."""

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.install

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/straggler.c"
EXAMPLE_MPI = ROOT / "examples/straggler_mpi.c"
OVER_MPI = ROOT / "tests/tools/install/over_mpi.c"
AUTO = ROOT / "tests/tools/install/auto.c"
HEADER = (ROOT / "csrc/include/wagma.h").read_text()
OPTIONS = (ROOT / "csrc/include/wagma_options.h").read_text()
ABI = re.search(r"#define WAGMA_ABI_VERSION (\d+)", OPTIONS)[1]
MPICC = Path(sys.prefix) / "bin/mpicc"
CC = os.environ.get("CC", "cc")


def output(*command: str | Path, **options) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("prefix")
    output("make", "-j2", "-C", ROOT, "install", f"PREFIX={where}", f"WAGMA_MPICC={MPICC}")
    return where


def library(prefix: Path) -> Path:
    return prefix / "lib/libwagma.so"


def flags(prefix: Path, name: str = "wagma") -> list[str]:
    """What pkg-config says; the one of the environment's pkgconf package, so it is always there."""
    path = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    command = (sys.executable, "-m", "pkgconf", "--cflags", "--libs", name)
    return output(*command, env=path).split()


def test_only_the_public_interface_is_exported(prefix):
    names = output("nm", "-D", "--defined-only", "--format=just-symbols", library(prefix))
    public = re.findall(r"^WAGMA_API [^;(]*?\b(wagma_\w+)\(", HEADER, re.MULTILINE)
    assert len(public) == HEADER.count("WAGMA_API ")
    assert sorted(names.split()) == sorted(public)


def test_soname_carries_the_abi_version(prefix):
    assert f"[libwagma.so.{ABI}]" in output("readelf", "-d", library(prefix))
    assert library(prefix).readlink() == Path(f"libwagma.so.{ABI}")


def test_header_needs_nothing_but_c99(prefix, tmp_path):
    source = tmp_path / "header.c"
    source.write_text("#include <wagma.h>\nint main(void) { return 0; }\n")
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    output(CC, *strict, source, *flags(prefix), "-o", tmp_path / "header")


def models(text: str) -> dict[str, str]:
    """What each rank of an example printed as its model."""
    return dict(re.findall(r"^rank (\d) .* model (\S+)$", text, re.MULTILINE))


def test_example_runs_and_its_ranks_agree(prefix, tmp_path):
    program = tmp_path / "straggler"
    output(CC, "-Wall", "-Wextra", "-Werror", EXAMPLE, *flags(prefix), "-o", program)
    found = models(output(program, env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}))
    assert sorted(found) == ["0", "1", "2", "3"]
    assert len(set(found.values())) == 1
    assert 0 < float(found["0"]) < 3


def over_mpi(prefix: Path, source: Path, program: Path) -> Path:
    """A program that was compiled with the MPI's compiler, as README says it."""
    words = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", source, *flags(prefix, "wagma_mpi")]
    output(MPICC, *words, f"-Wl,-rpath,{prefix}/lib", "-o", program)
    return program


def on_ranks(program: Path, ranks: int, **variables: str) -> str:
    mpiexec = shlex.split(os.environ["WAGMA_TEST_MPIEXEC"])
    return output(*mpiexec, "-n", str(ranks), program, env={**os.environ, **variables})


def has(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


# MPICH takes the ranks of one node for those of so many.
TWO = pytest.mark.skipif(not has("mpich"), reason="only MPICH sees two nodes in one when told")
NODES = [pytest.param("1", True, id="one"), pytest.param("2", False, id="two", marks=TWO)]


@pytest.mark.parametrize(("cliques", "shared"), NODES)
def test_example_over_mpi_takes_what_the_nodes_share(prefix, tmp_path, cliques, shared):
    program = over_mpi(prefix, EXAMPLE_MPI, tmp_path / "straggler_mpi")
    traces = tmp_path / "traces"
    text = on_ranks(program, 4, MPIR_CVAR_NUM_CLIQUES=cliques, WAGMA_TRACE=str(traces))
    found = models(text)
    assert sorted(found) == ["0", "1", "2", "3"]
    assert len(set(found.values())) == 1
    files = [json.loads(file.read_text()) for file in traces.iterdir()]
    assert [file["otherData"]["transport"] == "shm" for file in files] == [shared] * 4


@pytest.mark.parametrize("cliques", ["1", pytest.param("2", marks=TWO)])
def test_errors_of_creation_are_every_ranks(prefix, tmp_path, cliques):
    program = over_mpi(prefix, AUTO, tmp_path / "auto")
    text = on_ranks(program, 3, MPIR_CVAR_NUM_CLIQUES=cliques)
    # UCX has lines of its own, about messages that nobody read.
    lines = [line for line in text.splitlines() if line.startswith("rank")]
    assert sorted(lines) == [f"rank {rank}: 0 failures" for rank in range(3)]


def test_over_mpi_only_the_public_interface_is_exported(prefix):
    names = output(
        *("nm", "-D", "--defined-only", "--format=just-symbols"), prefix / "lib/libwagma_mpi.so"
    )
    assert sorted(names.split()) == [
        *("wagma_create_auto", "wagma_mpi_last_error", "wagma_mpi_transport")
    ]
    assert f"[libwagma_mpi.so.{ABI}]" in output("readelf", "-d", prefix / "lib/libwagma_mpi.so")


def test_over_mpi_ranks_agree(prefix, tmp_path):
    text = on_ranks(over_mpi(prefix, OVER_MPI, tmp_path / "over_mpi"), 2)
    assert sorted(text.splitlines()) == 2 * ["version 0: 3"] + 2 * ["version 1: 18"]


def test_without_an_mpi_the_engine_is_installed_alone(tmp_path):
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(f for f in folders if not (Path(f) / "mpicc").exists())
    clean = {k: v for k, v in os.environ.items() if k not in ("MPICC", "WAGMA_MPICC")}
    output("make", "-C", ROOT, "install", f"PREFIX={tmp_path}", env={**clean, "PATH": path})
    assert (tmp_path / "lib/libwagma.so").exists()
    assert not list(tmp_path.rglob("*wagma_mpi*"))


def test_destdir_is_honoured(tmp_path):
    output("make", "-C", ROOT, "install", "PREFIX=/opt/wagma", f"DESTDIR={tmp_path}")
    pc = (tmp_path / "opt/wagma/lib/pkgconfig/wagma.pc").read_text()
    assert "prefix=/opt/wagma\n" in pc
    assert (tmp_path / f"opt/wagma/lib/libwagma.so.{ABI}").exists()
