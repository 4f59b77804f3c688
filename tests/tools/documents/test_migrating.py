"""Run both sides of the diff in docs/migrating.md, from DDP, in the same torchrun job."""

import sys
from pathlib import Path

import pytest
from documents import blocks
from launched import finished

pytestmark = [pytest.mark.launch, pytest.mark.long]

LIVENESS_S = 200.0  # torchrun takes its time on a busy machine

# Rank 0 prints the largest difference of the two models.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

torch.set_num_threads(1)
ours, theirs = sys.argv[1:]

sys.modules["mpi4py"] = None  # ranks that torchrun started need none

def build_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

def train(code):
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    known = {"dataset": TensorDataset(inputs, inputs[:, :3].argmax(dim=1)),
             "build_model": build_model, "loss_function": torch.nn.functional.cross_entropy}
    exec(code, known)
    return torch.nn.utils.parameters_to_vector(known["model"].parameters()).detach()

start = torch.nn.utils.parameters_to_vector(build_model().parameters()).detach()
wagmas = train(ours.replace("wagma.WAGMA()", "wagma.AllreduceSGD()"))
ddps = train(theirs)
rank = dist.get_rank()
dist.destroy_process_group()
if rank == 0:
    print((wagmas - ddps).abs().max().item(), (wagmas - start).abs().max().item())
"""


def side(sign: str) -> str:
    """The diff's code with its lines of one sign."""
    (diff,) = blocks("migrating.md", "diff")
    lines = diff.splitlines(True)
    return "".join(line[1:] for line in lines if line[:1] in (" ", sign, "\n"))


def test_allreduce_computes_what_ddp_computes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    command = [sys.executable, str(program), side("+"), side("-")]
    done = finished([*torchrun, "--nproc-per-node", "2", *command], LIVENESS_S)
    assert done.returncode == 0, done.stderr
    difference, moved = map(float, done.stdout.split())
    assert difference < 1e-4 < 0.05 < moved
