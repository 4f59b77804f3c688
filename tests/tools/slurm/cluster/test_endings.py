"""Jobs that are ended: scancel leaves nothing of wagma's, and a killed rank ends the others."""

import re
import signal

import pytest
from cluster import ENDING_S, Cluster, await_result
from jobs import Job

pytestmark = pytest.mark.slurm

START_S = 90.0
TRAINING = """
import os, sys, torch, wagma
model = torch.nn.Linear(1000, 1000)
inner = torch.optim.SGD(model.parameters(), lr=0.01)
algorithm = getattr(wagma, sys.argv[1])()
with wagma.DistributedOptimizer(inner, algorithm, model=model) as opt:
    print(f"rank {algorithm.rank} is process {os.getpid()}", flush=True)
    while True:
        opt.zero_grad()
        model(torch.ones(1000)).sum().backward()
        opt.step()
        if algorithm.rank == 0 and opt.version == 10:
            print("training", flush=True)
"""
# The others say what is wrong before srun ends them, too.
SRUN = "srun --mpi=pmi2 --wait=5"
MPIEXEC = '"$MPIEXEC" -n "$SLURM_NTASKS"'
IDS = ("srun", "mpiexec")


def submit(cluster: Cluster, launcher: str, algorithm: str, *options: str) -> Job:
    program = cluster.work / "endless.py"
    program.write_text(TRAINING)
    script = f'#!/bin/bash\n{launcher} "$PYTHON" {program} {algorithm}\n'
    job = cluster.submit(script, *options)
    job.await_output("training", START_S)
    return job


def check_nothing_left(cluster: Cluster) -> None:
    await_result(lambda: not cluster.processes(), ENDING_S, lambda: str(cluster.processes()))
    assert cluster.memory_files() == []


@pytest.mark.parametrize(
    "launcher, algorithm, nodes", [(SRUN, "WAGMA", 2), (MPIEXEC, "AllreduceSGD", 1)], ids=IDS
)
def test_scancel_leaves_nothing(
    cluster: Cluster, launcher: str, algorithm: str, nodes: int
) -> None:
    job = submit(cluster, launcher, algorithm, f"--nodes={nodes}", "--ntasks=2")
    assert len([line for line in cluster.processes() if "endless.py" in line]) >= 2
    job.cancel()
    assert job.await_end(ENDING_S)["JobState"] == "CANCELLED"
    check_nothing_left(cluster)


@pytest.mark.parametrize(
    "launcher, message",
    [(SRUN, "rank 0 (AllreduceSGD) broke: rank 1 is dead"), (MPIEXEC, "Killed (signal 9)")],
    ids=IDS,
)
def test_a_killed_rank_ends_the_job(cluster: Cluster, launcher: str, message: str) -> None:
    job = submit(cluster, launcher, "AllreduceSGD", "--nodes=1", "--ntasks=2")
    (process,) = re.findall(r"rank 1 is process (\d+)", job.output)
    cluster.output("kill", f"-{int(signal.SIGKILL)}", process)
    assert job.await_end(ENDING_S)["JobState"] == "FAILED"
    assert message in job.output
    check_nothing_left(cluster)
