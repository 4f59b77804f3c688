"""comm="auto": one program under every launcher; and MPI.COMM_WORLD where MPI has no ranks."""

import subprocess
import sys
from pathlib import Path

import pytest
from launched import clean_environment
from test_torchrun import LIVENESS_S, launch, written

pytestmark = pytest.mark.launch

PROGRAM = """
import sys
from pathlib import Path
import torch
import wagma
from wagma.collectives import SyncAllreduce

torch.set_num_threads(1)
algorithm = wagma.WAGMA()
model = torch.nn.Linear(3, 1)
with wagma.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), algorithm) as opt:
    while opt.version < 5:
        opt.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        opt.step()
    opt.synchronize()
assert wagma.EagerSGD().size == algorithm.size
x = torch.full((2,), float(algorithm.rank))
with SyncAllreduce("auto", x, average=False) as coll:
    coll.allreduce(x)
Path(sys.argv[1], str(algorithm.rank)).write_text(f"{algorithm.size} {x[0]}")
"""

WORLD = """
import sys
import numpy as np
import wagma
from mpi4py import MPI
from wagma.collectives import SyncAllreduce

x = np.zeros(3, np.float32)
for make in (lambda: SyncAllreduce(MPI.COMM_WORLD, x), lambda: wagma.WAGMA(MPI.COMM_WORLD)):
    try:
        make()
    except RuntimeError as error:
        assert "WORLD_SIZE is 2, but MPI.COMM_WORLD has one rank" in str(error), error
        assert 'comm="auto"' in str(error)
    else:
        raise AssertionError("made")
with SyncAllreduce(MPI.COMM_SELF, x), SyncAllreduce(MPI.COMM_WORLD.Dup(), x):
    pass
"""


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("mpiexec", marks=pytest.mark.long)])
def test_one_program(launcher: str, tmp_path: Path) -> None:
    done = launch(launcher, 2, PROGRAM, tmp_path / launcher)
    assert done.returncode == 0, done.stderr
    assert written(tmp_path / launcher, 2) == ["2 1.0"] * 2


@pytest.mark.long
def test_alone(tmp_path: Path) -> None:
    """No launcher, and nothing that MPI needs."""
    program = "import sys; sys.modules['mpi4py'] = None\n" + PROGRAM
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert written(tmp_path, 1) == ["1 0.0"]


@pytest.mark.long
def test_the_world_of_mpi_under_torchrun(tmp_path: Path) -> None:
    done = launch("torchrun", 2, WORLD, tmp_path / "world")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "training"),
        *(
            pytest.param(words, marks=pytest.mark.long, id=" ".join(words))
            for words in (("demo",), ("bench", "allreduce"), ("tune",))
        ),
    ],
    ids=" ".join,
)
def test_commands_under_torchrun(command: tuple[str, ...]) -> None:
    """As each of its processes runs them; one of them speaks."""
    said = []
    for rank in "01":
        done = subprocess.run(
            [sys.executable, "-m", "wagma", *command],
            env=clean_environment()
            | {"TORCHELASTIC_RUN_ID": "x", "RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank},
            capture_output=True,
            text=True,
            timeout=LIVENESS_S,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        said.append(done.stderr)
    assert "WORLD_SIZE is 2, but MPI.COMM_WORLD has one rank" in said[0]
    assert "mpiexec -n 4" in said[0]
    assert said[1] == ""
