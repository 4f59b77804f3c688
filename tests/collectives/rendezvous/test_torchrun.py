"""Collectives and trainings whose ranks torchrun starts, beside the same under mpiexec."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from launched import finished

pytestmark = pytest.mark.launch

LIVENESS_S = 120.0
LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"],
    "mpiexec": [
        *shlex.split(
            os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
        ),
        "-n",
    ],
}

COMMUNICATOR = """
import os, signal, sys
if "RANK" in os.environ:
    sys.modules["mpi4py"] = None  # importing it fails
    comm, rank, size = None, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
else:
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
"""

# Writes what each rank got to a file of its own.
PROGRAM = (
    COMMUNICATOR
    + """
import hashlib
from pathlib import Path
import torch, wagma
from wagma.collectives import GroupAllreduce

torch.set_num_threads(1)
results = []

x = torch.full((1000,), rank + 0.1)
with GroupAllreduce(comm, x, group_size=1, sync_period=3) as coll:
    while coll.version < 3:
        coll.allreduce(x)
    results.append(x[0].item())

for name in ("WAGMA", "AllreduceSGD"):
    torch.manual_seed(rank)  # training starts with the model of rank 0
    layers = torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)
    model = torch.nn.Sequential(*layers)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    algorithm = wagma.WAGMA(comm, sync_period=1) if name == "WAGMA" else wagma.AllreduceSGD(comm)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        while optimizer.version < 10:
            draw = torch.Generator().manual_seed(100 * optimizer.version + rank)
            optimizer.zero_grad()
            model(torch.randn(8, 5, generator=draw)).square().mean().backward()
            optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    results.append(hashlib.sha256(flat.numpy().tobytes()).hexdigest())

Path(sys.argv[1], str(rank)).write_text(repr(results))
"""
)

# Rank 1 is killed in its first life, in the middle of a training.
RESTARTED = (
    COMMUNICATOR
    + """
from pathlib import Path
import numpy as np
from wagma.collectives import PartialAllreduce

life = os.environ["TORCHELASTIC_RESTART_COUNT"]
x = np.full(5, rank, np.float32)
with PartialAllreduce(comm, x, name=life) as coll:
    coll.allreduce(x)
    if (rank, life) == (1, "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    coll.allreduce(x)
Path(sys.argv[1], str(rank)).write_text(life)
"""
)


def launch(
    launcher: str, size: int, program: str, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    script = folder / "program.py"
    script.write_text(program)
    command = [*LAUNCHERS[launcher], str(size), *options]
    if launcher == "mpiexec":
        command.append(sys.executable)
    return finished([*command, str(script), str(folder)], LIVENESS_S)


def written(folder: Path, size: int) -> list[str]:
    return [(folder / str(rank)).read_text() for rank in range(size)]


@pytest.mark.long
def test_torchrun_equals_mpiexec(tmp_path: Path) -> None:
    """To the bit; and all ranks have the same."""
    size = 3
    results = {}
    for launcher in LAUNCHERS:
        done = launch(launcher, size, PROGRAM, tmp_path / launcher)
        assert done.returncode == 0, done.stderr
        results[launcher] = written(tmp_path / launcher, size)
        assert len(set(results[launcher])) == 1
    assert results["torchrun"] == results["mpiexec"]


@pytest.mark.long
def test_a_rank_that_dies_and_a_job_that_is_restarted(tmp_path: Path) -> None:
    folder = tmp_path / "restarted"
    done = launch("torchrun", 3, RESTARTED, folder, "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert written(folder, 3) == ["1"] * 3
    # torchrun reports the first to end that it sees: the killed one, or one that missed it
    assert "(exitcode: -9) local_rank: 1" in done.stderr or "rank 1 is dead" in done.stderr
