"""The demo and the benchmark as batch jobs, by srun and by mpiexec; ranks that lack a launcher."""

import json
import shlex
import sys

import pytest
from cluster import Cluster
from jobs import Job
from templates import ROOT, replaced, show_scripts

pytestmark = pytest.mark.slurm

DEMO_S = 180.0
BATCH = "#!/bin/bash\n#SBATCH --nodes=1 --ntasks=4\nset -e\n"
DEMO = '"$PYTHON" -m wagma demo --steps 8 --algorithms allreduce,wagma --json demo-$SLURM_JOB_ID'
LAUNCHERS = {"srun": "srun --mpi=pmi2", "mpiexec": '"$MPIEXEC" -n "$SLURM_NTASKS"'}
WORLD = "from mpi4py import MPI; print(MPI.COMM_WORLD.size, flush=True)"
REFUSED = """
import sys
from mpi4py import MPI
import wagma.collectives, numpy
wagma.collectives.SyncAllreduce(MPI.COMM_WORLD, numpy.zeros(1, numpy.float32))
"""


def test_the_demo(cluster: Cluster) -> None:
    """By mpiexec; the next test has it by srun, and those of resuming have srun on one node."""
    job = cluster.submit(f"{BATCH}{LAUNCHERS['mpiexec']} {DEMO}.json\n", "--ntasks=3")
    assert "3 ranks" in job.complete(DEMO_S)
    demo = json.loads((cluster.work / f"demo-{job.number}.json").read_text())
    assert len(demo["runs"]) == 2, demo


def test_ranks_of_two_nodes(cluster: Cluster) -> None:
    script = f"#!/bin/bash\n{LAUNCHERS['srun']} {DEMO}.json\n"
    job = cluster.submit(script, "--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    assert "2 ranks" in job.complete(DEMO_S)


def test_two_nodes_and_an_environment_with_a_long_path(cluster: Cluster) -> None:
    """MPICH with UCX would send the path to Slurm, whose pmi2 plugin would read half of it."""
    environment = cluster.work / ("long" * 40) / ("path" * 40)
    environment.parent.mkdir()
    environment.symlink_to(sys.prefix)
    script = f"#!/bin/bash\nsrun --mpi=pmi2 {environment}/bin/python -c {shlex.quote(WORLD)}\n"
    job = cluster.submit(script, "--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    assert job.complete(DEMO_S).split() == ["2", "2"]


def test_the_benchmark_template(cluster: Cluster) -> None:
    settings = {
        "KINDS": "allreduce skew",
        "BENCH_ARGS": "-c --baseline mpi -i 5 -x 1 -m 64:64",
        "RESULTS": str(cluster.work / "results"),
    }
    show_scripts(cluster)
    job = cluster.submit(ROOT / "slurm/bench.sbatch", "--ntasks-per-node=2", env=settings)
    said = job.complete(DEMO_S)
    for kind in ("allreduce", "skew"):
        results = json.loads((cluster.work / f"results/{kind}.json").read_text())
        assert results["settings"]["kind"] == kind
    assert (cluster.work / "results/report.html").exists()
    assert "report.html" in said


def test_the_sweep_template(cluster: Cluster) -> None:
    """Two tasks, with 2 and 4 ranks; both results make one report."""
    text = (ROOT / "slurm/bench-sweep.sbatch").read_text()
    for pattern, new in {
        r"^kinds=.*$": "kinds=(allreduce)",
        r"^counts=.*$": "counts=(2 4)",
        r"^arguments=.*$": "arguments=(-c --baseline mpi -i 5 -x 1 -m 64:64)",
        r"--ntasks-per-node=16": "--ntasks-per-node=4",
    }.items():
        text = replaced(text, pattern, new)
    show_scripts(cluster)
    array = cluster.submit(text, "--array=0-1")
    for task in (0, 1):
        Job(cluster, f"{array.number}_{task}").complete(DEMO_S)
    results = f"wagma-bench-{array.number}"
    for count in (2, 4):
        result = json.loads((cluster.work / results / f"allreduce-{count}.json").read_text())
        assert result["settings"]["kind"] == "allreduce"
    assert "2 files" in cluster.output(sys.executable, "-m", "wagma", "report", results)


@pytest.mark.parametrize("option", ["", "--mpi=none"])
def test_a_world_of_one_in_a_step_of_several_is_refused(cluster: Cluster, option: str) -> None:
    program = cluster.work / "refused.py"
    program.write_text(REFUSED)
    job = cluster.submit(f'{BATCH}srun {option} "$PYTHON" {program}\n')
    assert job.await_end(DEMO_S)["JobState"] == "FAILED"
    assert "SLURM_STEP_NUM_TASKS is 4" in job.output
    assert "srun --mpi=pmi2" in job.output


def test_a_program_in_the_batch_shell_goes_on(cluster: Cluster) -> None:
    program = cluster.work / "prepare.py"
    program.write_text(REFUSED + "print('prepared')\n")
    assert "prepared" in cluster.submit(f'{BATCH}"$PYTHON" {program}\n').complete(DEMO_S)


@pytest.mark.parametrize("option", ["--mpi=none", "--mpi=pmi2"])
def test_doctor_tells_the_wrong_launch(cluster: Cluster, option: str) -> None:
    job = cluster.submit(f'{BATCH}srun {option} "$PYTHON" -m wagma doctor\n')
    state = job.await_end(DEMO_S)["JobState"]
    wrong = option == "--mpi=none"
    assert state == ("FAILED" if wrong else "COMPLETED"), job.output
    assert ("SLURM_STEP_NUM_TASKS is 4" in job.output) == wrong, job.output
