"""Commands whose ranks were started with different arguments: nobody waits, and it is said once."""

import subprocess
import sys
from pathlib import Path

import pytest
from under_mpiexec import in_turn, unlike

pytestmark = [pytest.mark.launch, pytest.mark.long]

WAGMA = [sys.executable, "-m", "wagma"]

# Command lines of rank 0 and rank 1, and what is said once. {}: a file that nobody writes.
# Some are refused, which they tell the others as soon as there is MPI: in a launch of its own each.
REFUSED = {
    "demo": (
        "demo --picture {} --steps 0",
        "demo --picture {}",
        "argument --steps: 0 is too small",
    ),
    "tune": (
        "tune --file {}",
        "tune --file {} --largest 1",
        "rank 1 takes no part: argument --largest: '1' must be",
    ),
    "help": ("tune --file {}", "tune --help", "rank 1 takes no part: it only shows its help"),
    "training": (
        "bench training",
        "bench training --algorithms sgd",
        "rank 1 takes no part: argument --algorithms",
    ),
    "commands": ("bench training", "bench allreduce", "give all ranks one command"),
}
# Others have begun, as they would after anything else.
DISAGREED = {
    "demo, steps": (
        "demo --picture {} --steps 1",
        "demo --picture {} --steps 2",
        "--steps is 1 on rank 0, 2 on rank 1;",
    ),
    "demo, imbalance": (
        "demo --picture {}",
        "demo --picture {} --imbalance none",
        "--imbalance is paper:2:0.05 on rank 0, none on",
    ),
    "tune, seconds": (
        "tune --file {} --time 1s",
        "tune --file {} --time 2s",
        "--time is 1.0 on rank 0, 2.0 on",
    ),
    "tune, largest": (
        "tune --file {}",
        "tune --file {} --largest 1MiB",
        "--largest is 8388608 on rank 0, 1048576 on rank 1;",
    ),
    "tune, file": ("tune --file {}", "tune --file other.json", "--file is "),
}


def check(case: str, done: subprocess.CompletedProcess[str], message: str) -> None:
    if case.startswith(("demo", "training", "commands")):
        pytest.importorskip("rich")
    assert done.returncode == 2, done.stderr
    assert (done.stdout + done.stderr).count(message) == 1
    assert "Traceback" not in done.stderr


def words(file: Path, line: str) -> list[str]:
    return [word.format(file) for word in line.split()]


@pytest.mark.parametrize("case", REFUSED)
def test_one_is_refused(case: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    first, second, message = REFUSED[case]
    check(case, unlike([*WAGMA, *words(file, first)], [*WAGMA, *words(file, second)]), message)
    assert not file.exists()


# Rank 1 finds torch, and cannot import it.
BROKEN = """
import os, sys
from importlib.machinery import ModuleSpec

class Broken:
    def find_spec(self, name, *_):
        return ModuleSpec(name, self) if name == "torch" else None
    def create_module(self, spec):
        raise OSError("libtorch.so: no room")
    def exec_module(self, module):
        pass

if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    sys.meta_path.insert(0, Broken())
"""


@pytest.mark.parametrize("line", ["demo --steps 1 --picture {}", "bench training --steps 1"])
def test_a_package_that_cannot_be_imported_on_one_rank(line: str, tmp_path: Path) -> None:
    pytest.importorskip("rich")
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    command = [*WAGMA, *words(tmp_path / "demo.png", line)]
    done = unlike(command, command, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert (done.stdout + done.stderr).count("libtorch.so: no room") == 1
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def disagreed(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, subprocess.CompletedProcess[str]]:
    """Each of DISAGREED."""
    folder = tmp_path_factory.mktemp("disagreed")
    file = folder / "file"
    lines = [[words(file, line) for line in lines] for *lines, _ in DISAGREED.values()]
    done = dict(zip(DISAGREED, in_turn(folder, lines), strict=True))
    assert not file.exists()
    return done


@pytest.mark.parametrize("case", DISAGREED)
def test_they_disagree(case: str, disagreed: dict[str, subprocess.CompletedProcess[str]]) -> None:
    check(case, disagreed[case], DISAGREED[case][2])
