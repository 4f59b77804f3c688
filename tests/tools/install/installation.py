"""Installs the package as users do, into an environment of its own, without an MPI compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

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
for name in ("benchmark", "training"):
    assert (resources.files("wagma.report") / f"{name}.schema.json").is_file(), name
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


# Optimising takes most of a build, and compiling the same sources again most of the others: nothing
# here is about either. Nobody changes the copies of the sources, which have the same paths in each;
# absolute ones are of Python's headers, and the environment's.
COMPILER = """#!/bin/sh
object= words= previous=
for word; do
    case $previous:$word in
    -o:*) object=$word ;;
    *:-o | *:-I/*) ;;
    *) words="$words $word" ;;
    esac
    previous=$word
done
case "$words " in
*" -c csrc/mpi/"*) exec {compiler} "$@" -O0 ;; # with the headers of an MPI
*" -c csrc/"* | *" -c collectives/"* | *" -c benchmarks/"*) ;;
*) exec {compiler} "$@" -O0 ;;
esac
kept={folder}/$(echo "$words" | cksum | tr ' ' -).o
if [ ! -e "$kept" ]; then
    {compiler} "$@" -O0 || exit
    cp "$object" "$kept.$$" && mv "$kept.$$" "$kept"
fi
cp "$kept" "$object"
"""


def quick_compiler(folder: Path) -> str:
    """The usual one, which keeps in the folder what it has compiled of these sources."""
    compiler = folder / "cc"
    compiler.write_text(COMPILER.format(compiler=os.environ.get("CC", "cc"), folder=folder))
    compiler.chmod(0o755)
    return str(compiler)


class Installation:
    """A copy of the sources, and an environment into which it was installed."""

    def __init__(self, where: Path, compiler: str, *, editable: bool, **variables: str):
        self.compiler = compiler
        self.clone = where / "clone"
        self.empty = where / "empty"
        self.empty.mkdir()
        shutil.copytree(ROOT, self.clone, ignore=shutil.ignore_patterns(*BUILT))
        # Nothing asks a plain one for pip, whose installation takes longer than an environment's.
        without = [] if editable else ["--without-pip"]
        output(sys.executable, "-m", "venv", *without, where / "venv", cwd=where)
        self.python = where / "venv/bin/python"
        self.site = Path(output(self.python, "-c", PURELIB, cwd=where))
        option = ["--editable"] if editable else []
        # From another folder than the clone; its root is tried by the tests.
        target = f"{self.clone}[mpich]"
        pip = [sys.executable, "-m", "pip", "--python", self.python]
        output(
            *(*pip, "install", "-q", *option, target), cwd=self.empty, CC=self.compiler, **variables
        )

    def use(self, cwd: Path) -> list[Path]:
        """Where Python, started in `cwd`, found the packages."""
        return [Path(line) for line in output(self.python, "-c", USE, cwd=cwd).splitlines()]


def packages_of(folder: Path) -> list[Path]:
    return [folder / package / "__init__.py" for package in ("collectives", "benchmarks")]
