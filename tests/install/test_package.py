"""The Python package: plain and editable installations, without an MPI compiler on PATH.

The plain one is built with the MPI that the build asks for by itself, the editable one without any.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The engine at work on one rank; prints where it was imported from.
USE = """
from importlib import resources

import numpy as np
from mpi4py import MPI
import wagma
import wagma.benchmarks.settings
from wagma.benchmarks import _loop
from wagma.collectives import GroupAllreduce, topology

x = np.arange(5.0)
with GroupAllreduce(MPI.COMM_WORLD, x, group_size=1) as collective:
    outcome = collective.allreduce(x)
assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0], x
assert topology.groups(3, 1, 0) == [(0,), (1,), (2,)]
assert _loop.now() > 0
for name in ("report", "training"):
    assert (resources.files(wagma.benchmarks) / f"{name}.schema.json").is_file(), name
for package in (wagma.collectives, wagma.benchmarks):
    print(package.__file__)
"""
# A transport over MPI; prints the name of its capsule.
CONNECT = """
from mpi4py import MPI
from wagma.collectives import transport

print(transport.connect(MPI.COMM_SELF))
"""
PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
BUILT = (
    ".git",
    ".venv*",
    ".*_cache",
    "__pycache__",
    "*.egg-info",
    "*.so",
    "_engine.c",
    "_loop.c",
    "build",
)


def clean_environment(**variables: str) -> dict[str, str]:
    """No compiler wrapper, no Python path: what a user has who installed no MPI; and these."""
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(f for f in folders if not (Path(f) / "mpicc").exists())
    left_out = {"PYTHONPATH", "MPICC", "WAGMA_MPICC", "WAGMA_MPI", "VIRTUAL_ENV"}
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    return kept | {"PATH": path} | variables


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    assert shutil.which("mpicc", path=clean_environment()["PATH"]) is None
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=900,
    )


def output(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = run(*command, cwd=cwd, **variables)
    assert done.returncode == 0, f"{command} in {cwd}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


class Installation:
    """A copy of the sources, and an environment into which it was installed."""

    def __init__(self, where: Path, *, editable: bool, **variables: str):
        self.clone = where / "clone"
        self.empty = where / "empty"
        self.empty.mkdir()
        shutil.copytree(ROOT, self.clone, ignore=shutil.ignore_patterns(*BUILT))
        output(sys.executable, "-m", "venv", where / "venv", cwd=where)
        self.python = where / "venv/bin/python"
        self.site = Path(output(self.python, "-c", PURELIB, cwd=where))
        option = ["--editable"] if editable else []
        # From another folder than the clone; its root is tried by the tests.
        target = f"{self.clone}[mpich]"
        install = [self.python, "-m", "pip", "install", "-q", *option, target]
        output(*install, cwd=self.empty, **variables)

    def use(self, cwd: Path) -> list[Path]:
        """Where Python, started in `cwd`, found the packages."""
        return [Path(line) for line in output(self.python, "-c", USE, cwd=cwd).splitlines()]


def packages_of(folder: Path) -> list[Path]:
    return [folder / package / "__init__.py" for package in ("collectives", "benchmarks")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Installation:
    return Installation(tmp_path_factory.mktemp("plain"), editable=False)


@pytest.fixture(scope="module")
def editable(tmp_path_factory) -> Installation:
    return Installation(tmp_path_factory.mktemp("editable"), editable=True, WAGMA_MPI="none")


def test_plain_from_an_empty_folder(plain):
    assert plain.use(plain.empty) == packages_of(plain.site / "wagma")


def test_plain_from_the_clone_says_what_hides_it(plain):
    done = run(plain.python, "-c", "import wagma", cwd=plain.clone)
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ")
    assert str(plain.clone / "wagma") in message
    assert f"pip install -e {plain.clone}" in message


def test_plain_installs_what_type_checkers_and_compilers_need(plain):
    for name in (
        "py.typed",
        "collectives/_engine.pyi",
        "benchmarks/_loop.pyi",
        "include/wagma.h",
    ):
        assert (plain.site / "wagma" / name).exists(), name
    assert not list((plain.site / "wagma").rglob("*.c")), "generated sources were installed"


def test_plain_can_be_repeated_from_the_clone(plain):
    output(plain.python, "-m", "pip", "install", "-q", "--no-deps", ".", cwd=plain.clone)
    assert plain.use(plain.empty) == packages_of(plain.site / "wagma")


def test_plain_is_built_with_an_mpi_that_the_build_asked_for(plain):
    (extension,) = (plain.site / "wagma/collectives").glob("_mpi_*.so")
    assert extension.name.startswith("_mpi_mpich.")
    dynamic = output("readelf", "-d", extension, cwd=plain.empty)
    assert "libmpi.so.12" in dynamic
    assert "pip-build-env" not in dynamic, "looks for libraries where the build was"
    assert '"wagma_transport"' in output(plain.python, "-c", CONNECT, cwd=plain.empty)


def test_without_an_mpi_the_command_that_builds_the_transport_is_told(editable):
    assert not list((editable.clone / "collectives").glob("_mpi_*"))
    done = run(editable.python, "-c", CONNECT, cwd=editable.empty)
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: wagma was built without the transport over MPI")
    assert "MPICH Version:" in message
    told = shlex.split(re.search(r"WAGMA_MPICC=.*$", message)[0])
    variable, *command = told
    output(*command, cwd=editable.empty, WAGMA_MPICC=variable.removeprefix("WAGMA_MPICC="))
    assert '"wagma_transport"' in output(editable.python, "-c", CONNECT, cwd=editable.empty)


def test_unusable_mpi_compiler_that_was_named_ends_the_build(plain):
    install = [plain.python, "-m", "pip", "install", "--no-deps", plain.clone]
    done = run(*install, cwd=plain.empty, WAGMA_MPICC="gcc")
    assert done.returncode != 0
    assert "WAGMA_MPICC='gcc' does not compile a program with mpi.h" in done.stdout + done.stderr


def test_editable_from_an_empty_folder(editable):
    assert editable.use(editable.empty) == packages_of(editable.clone)


def test_editable_from_the_clone(editable):
    assert editable.use(editable.clone) == packages_of(editable.clone)
