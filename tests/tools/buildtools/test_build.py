"""The build: which MPI compiler is found, and what the build backend asks for."""

import sys
import threading
from pathlib import Path

import pytest
from setuptools.errors import OptionError

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "buildtools"))
import backend  # noqa: E402
import mpi_compiler  # noqa: E402
import parallel  # noqa: E402
import step  # noqa: E402


def compiler(folder: Path, name: str, family: str | None) -> Path:
    """A program that preprocesses like the compiler of a family; None: it finds no mpi.h."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    body = "exit 1" if family is None else f"echo 'wagma_family = {family}'"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """A folder that is all of PATH; this Python is in no virtual environment."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(mpi_compiler.sys, "prefix", sys.base_prefix)
    (tmp_path / "path").mkdir()
    return tmp_path / "path"


def test_nothing_is_found_where_there_is_nothing(path):
    compiler(path, "cc", None)
    assert mpi_compiler.find({}) is None


def test_cc_counts_only_where_it_compiles_mpi_programs(path):
    compiler(path, "cc", "mpich")
    assert mpi_compiler.find({}) == (["cc"], "mpich", False)


def test_order(path, tmp_path, monkeypatch):
    environ = {}
    expected = []
    for name in ("cc", "mpicc"):
        compiler(path, name, "mpich")
        expected.append([name])
        assert mpi_compiler.find(environ).command == expected[-1]
    environment = tmp_path / "environment"
    environment.mkdir()
    compiler(environment / "bin", "mpicc", "openmpi")
    monkeypatch.setattr(mpi_compiler.sys, "prefix", str(environment))
    assert mpi_compiler.find(environ) == ([f"{environment}/bin/mpicc"], "openmpi", False)
    environ["MPICC"] = str(compiler(path, "one", "mpich"))
    assert mpi_compiler.find(environ).command == [environ["MPICC"]]
    environ["WAGMA_MPICC"] = f"{compiler(path, 'two', 'mpich')} -cc=gcc"
    assert mpi_compiler.find(environ).command == [str(path / "two"), "-cc=gcc"]


def test_unusable_mpicc_is_passed_over(path):
    compiler(path, "mpicc", "mpich")
    assert mpi_compiler.find({"MPICC": "/nowhere/mpicc"}).command == ["mpicc"]


@pytest.mark.parametrize("broken", ["/nowhere/mpicc", "made"])
def test_wagma_mpicc_that_cannot_compile_is_an_error(path, broken):
    name = str(compiler(path, "broken", None)) if broken == "made" else broken
    compiler(path, "mpicc", "mpich")
    with pytest.raises(RuntimeError, match=f"WAGMA_MPICC='{name}' does not compile"):
        mpi_compiler.find({"WAGMA_MPICC": name})


def test_mpi_of_this_environment_belongs_to_a_wheel():
    found = mpi_compiler.find({})
    assert found is not None
    assert found.wheel
    flags = found.flags()
    assert "-lmpi" in flags
    assert any(flag.startswith("-I") for flag in flags)
    assert not [flag for flag in flags if "rpath" in flag]
    assert not [flag for flag in flags if not flag.startswith("-")], "a folder without its option"


@pytest.mark.parametrize(
    ("environ", "asked"),
    [({}, "mpich"), ({"WAGMA_MPI": ""}, "mpich"), ({"WAGMA_MPI": "openmpi"}, "openmpi")],
)
@pytest.mark.usefixtures("path")
def test_backend_asks_for_an_mpi_where_there_is_none(environ, asked):
    (requirement,) = backend.mpi_requirements(environ)
    assert requirement.startswith(f"{asked}>=")


@pytest.mark.usefixtures("path")
def test_backend_asks_for_nothing_when_told():
    assert backend.mpi_requirements({"WAGMA_MPI": "none"}) == []


def test_backend_asks_for_nothing_where_there_is_one(path):
    compiler(path, "mpicc", "openmpi")
    assert backend.mpi_requirements({}) == []
    assert backend.mpi_requirements({"WAGMA_MPI": "openmpi"}) == []


def test_a_compiler_of_another_family_than_wanted_is_passed_over(path):
    compiler(path, "mpicc", "mpich")
    assert mpi_compiler.find({"WAGMA_MPI": "mpich"}).family == "mpich"
    assert mpi_compiler.find({"WAGMA_MPI": "openmpi"}) is None
    (requirement,) = backend.mpi_requirements({"WAGMA_MPI": "openmpi"})
    assert requirement.startswith("openmpi>=")
    compiler(path, "cc", "openmpi")
    assert mpi_compiler.find({"WAGMA_MPI": "openmpi"}).command == ["cc"]
    assert mpi_compiler.find({"WAGMA_MPI": "none"}) is None
    asked = {"WAGMA_MPI": "openmpi", "WAGMA_MPICC": str(path / "mpicc")}
    with pytest.raises(RuntimeError, match="mpicc' compiles for mpich, and WAGMA_MPI=openmpi"):
        mpi_compiler.find(asked)


def test_unknown_mpi_is_an_error():
    with pytest.raises(ValueError, match="WAGMA_MPI='lam': must be mpich, openmpi or none"):
        backend.mpi_requirements({"WAGMA_MPI": "lam"})
    with pytest.raises(ValueError, match="WAGMA_MPI='lam': must be mpich, openmpi or none"):
        mpi_compiler.find({"WAGMA_MPI": "lam"})  # as setup.py build_ext does


class Compiler:
    """As much of setuptools' compiler as is changed: `compile` calls `_compile` for each source.

    Compiling "meet" ends when another source is being compiled, "wrong" is an error.
    """

    def __init__(self):
        self.compiled = []
        self.met = threading.Barrier(2, timeout=20)

    def compile(self, sources):
        for source in sources:
            self._compile(f"{source}.o", source)
        return [f"{source}.o" for source in sources]

    def _compile(self, _object, source):
        if source == "meet":
            self.met.wait()
        elif source == "wrong":
            raise RuntimeError("wrong does not compile")
        self.compiled.append(source)


def test_sources_are_compiled_at_the_same_time_and_objects_keep_their_order():
    compiler = Compiler()
    parallel.compile_with(compiler, 2)
    for _ in range(2):
        assert compiler.compile(["meet", "meet", "a", "b"]) == ["meet.o", "meet.o", "a.o", "b.o"]
    assert sorted(compiler.compiled) == ["a", "a", "b", "b", "meet", "meet", "meet", "meet"]


def test_no_source_is_begun_after_one_that_does_not_compile():
    compiler = Compiler()
    parallel.compile_with(compiler, 1)
    with pytest.raises(RuntimeError, match="wrong does not compile"):
        compiler.compile(["a", "wrong", "b", "b"])
    assert compiler.compiled == ["a"]
    assert compiler.compile(["b"]) == ["b.o"]


def test_max_jobs(monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "3")
    assert parallel.jobs() == 3
    monkeypatch.setenv("MAX_JOBS", "")
    assert parallel.jobs() >= 1
    for wrong in ("0", "-1", "all"):
        monkeypatch.setenv("MAX_JOBS", wrong)
        with pytest.raises(OptionError, match=f"MAX_JOBS='{wrong}'"):
            parallel.jobs()


# ---- steps ---------------------------------------------------------------------------------------


def test_a_step_is_never_silent(tmp_path, monkeypatch):
    """It says what the command said last, again and again: the command waits for that."""
    seen = tmp_path / "seen"
    wait = f"while not os.path.exists({str(seen)!r}) and time.time() < until: time.sleep(0.01)"
    program = (
        f"import os, time\nuntil = time.time() + 60\nprint('Collecting torch', flush=True)\n{wait}"
    )
    said = []

    def say(text):
        said.append(text)
        if sum(line.endswith("Collecting torch") for line in said) == 2:
            seen.touch()

    monkeypatch.setattr(step, "say", say)
    assert step.run("Install", [sys.executable, "-c", program], period=0.2) == 0
    first, *_, last = said
    assert (first, last.split(":")[0]) == ("Install ...", "Install")
    assert "done in" in last
    assert seen.exists(), said


def test_a_step_that_fails_shows_all_that_was_said(capsys):
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    assert step.run("Compile", [sys.executable, "-u", "-c", program]) == 3
    said = capsys.readouterr().out.splitlines()
    assert sorted(said[1:3]) == ["one", "two"]
    assert "Compile: failed with status 3" in said[3]
