"""The C library as `make install` leaves it: symbols, soname, pkg-config, and a program on top."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/straggler.c"
OVER_MPI = ROOT / "tests/install/over_mpi.c"
HEADER = (ROOT / "csrc/wagma.h").read_text()
ABI = re.search(r"#define WAGMA_ABI_VERSION (\d+)", HEADER)[1]
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
    assert len(public) == HEADER.count("WAGMA_API ") - HEADER.count("#define WAGMA_API ")
    assert sorted(names.split()) == sorted(public)


def test_soname_carries_the_abi_version(prefix):
    assert f"[libwagma.so.{ABI}]" in output("readelf", "-d", library(prefix))
    assert library(prefix).readlink() == Path(f"libwagma.so.{ABI}")


def test_header_needs_nothing_but_c99(prefix, tmp_path):
    source = tmp_path / "header.c"
    source.write_text("#include <wagma.h>\nint main(void) { return 0; }\n")
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    output(CC, *strict, source, *flags(prefix), "-o", tmp_path / "header")


def test_example_runs_and_its_ranks_agree(prefix, tmp_path):
    program = tmp_path / "straggler"
    output(CC, "-Wall", "-Wextra", "-Werror", EXAMPLE, *flags(prefix), "-o", program)
    text = output(program, env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})
    models = dict(re.findall(r"^rank (\d) .* model (\S+)$", text, re.MULTILINE))
    assert sorted(models) == ["0", "1", "2", "3"]
    assert len(set(models.values())) == 1
    assert 0 < float(models["0"]) < 3


def test_over_mpi_only_the_public_interface_is_exported(prefix):
    names = output(
        *("nm", "-D", "--defined-only", "--format=just-symbols"), prefix / "lib/libwagma_mpi.so"
    )
    assert sorted(names.split()) == ["wagma_mpi_last_error", "wagma_mpi_transport"]
    assert f"[libwagma_mpi.so.{ABI}]" in output("readelf", "-d", prefix / "lib/libwagma_mpi.so")


def test_over_mpi_ranks_agree(prefix, tmp_path):
    program = tmp_path / "over_mpi"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    output(MPICC, *warnings, OVER_MPI, *flags(prefix, "wagma_mpi"), "-o", program)
    mpiexec = shlex.split(os.environ["WAGMA_TEST_MPIEXEC"])
    text = output(
        *(*mpiexec, "-n", "2", program), env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
    )
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
