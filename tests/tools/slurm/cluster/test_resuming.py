"""Batch scripts of slurm/ that are interrupted: they run again and end as if nothing had been.

AllreduceSGD: what a run exports that was interrupted is to the byte what one exports that was not.
"""

import re

import pytest
from cluster import Cluster, await_result
from jobs import OVER, Job
from templates import RESUMED_S, STEPS, Template

pytestmark = pytest.mark.slurm

STOP_S = 150.0  # two minutes; Slurm looks at limits twice a minute, and signals up to 30 s early
SHORT = "--time=2"
TAKEN: dict[str, bytes] = {}


def uninterrupted(cluster: Cluster) -> bytes:
    """What a run exports that nobody interrupts."""
    if not TAKEN:
        template = Template("train-cpu.sbatch", "whole")
        (cluster.work / "checkpoints/whole").mkdir(parents=True)
        template.submit(cluster).complete(RESUMED_S)
        TAKEN["model"] = template.exported(cluster)
    return TAKEN["model"]


def check_resumed(cluster: Cluster, template: Template, job: Job, restarts: int = 1) -> None:
    """It has gone on where it was, and trained what it would have anyway."""
    said = job.complete(RESUMED_S)
    assert job.restarts >= restarts  # more of them, where it is slow and has a time limit
    versions = [int(number) for number in re.findall(r"resumed at version (\d+)", said)]
    assert 0 < versions[0] < STEPS
    assert f"version {STEPS}:" in said
    assert template.exported(cluster) == uninterrupted(cluster)


def await_limit(cluster: Cluster, job: Job) -> None:
    """Wait until it is queued again, and take care that it does not come to its limit again."""
    await_result(lambda: job.restarts, STOP_S, lambda: job.output)
    cluster.output("scontrol", "update", f"jobid={job.number}", "timelimit=30")


@pytest.mark.parametrize("launcher", ["srun", "mpiexec"])
def test_the_time_limit(cluster: Cluster, launcher: str) -> None:
    template = Template("train-cpu.sbatch", f"limit-{launcher}", by_mpiexec=launcher == "mpiexec")
    job = template.submit(cluster, SHORT, "--signal=B:USR2@55")
    await_limit(cluster, job)
    check_resumed(cluster, template, job)


def test_the_time_limit_of_ranks_that_slurm_signals(cluster: Cluster) -> None:
    template = Template("train-requeue.sbatch", "limit-ranks")
    job = template.submit(cluster, SHORT, "--signal=USR2@55")
    await_limit(cluster, job)
    check_resumed(cluster, template, job)


def test_preemption(cluster: Cluster) -> None:
    template = Template("train-requeue.sbatch", "preempted")
    job = template.submit(cluster, "--nodelist=n1")
    template.await_steps(job)
    urgent = cluster.submit(
        "#!/bin/bash\nsleep 1\n", "--partition=urgent", "--nodelist=n1", "--exclusive"
    )
    urgent.complete(60.0)
    assert job.restarts
    check_resumed(cluster, template, job)


def test_a_killed_rank(cluster: Cluster) -> None:
    """The job fails; submitted again by its user it goes on."""
    template = Template("train-cpu.sbatch", "killed", by_mpiexec=True)
    job = template.submit(cluster)
    template.await_steps(job)
    cluster.output("pkill", "-KILL", "-o", "-f", "^python slurm/train.py.*checkpoints/killed")
    assert job.await_end(30.0)["JobState"] == "FAILED"
    assert "Killed (signal 9)" in job.output
    again = template.submit(cluster)
    check_resumed(cluster, template, again, restarts=0)


def test_ranks_without_scontrol_end_with_85_and_the_script_chains(cluster: Cluster) -> None:
    template = Template(
        "train-cpu.sbatch", "chained", launch='env PATH="${VENV:?}/bin"', by_mpiexec=True
    )
    job = template.submit(cluster)
    template.await_steps(job)
    cluster.output("scancel", "--signal=USR2", "--batch", job.number)
    await_result(lambda: job.restarts == 1, 30.0, lambda: job.output)
    check_resumed(cluster, template, job)


def test_without_any_scontrol_a_job_follows(cluster: Cluster) -> None:
    """It has the name that was given to sbatch, and thus the checkpoints."""
    commands = cluster.work / "commands"
    commands.mkdir()
    for name in ("srun", "sbatch", "squeue"):
        (commands / name).symlink_to(cluster.output("which", name).strip())
    (commands / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    (commands / "scontrol").chmod(0o755)
    template = Template("train-cpu.sbatch", "followed")
    script = Template("train-cpu.sbatch", "unnamed")
    job = script.submit(cluster, "--job-name=followed", path=f"{commands}:$PATH")
    template.await_steps(job)
    cluster.output("scancel", "--signal=USR2", "--batch", job.number)
    fields = job.await_state(*OVER, seconds=30.0)
    assert fields["ExitCode"].startswith("85"), job.output
    (number,) = re.findall(r"Submitted batch job (\d+)", job.output)
    following = Job(cluster, number)
    check_resumed(cluster, template, following, restarts=0)


def test_an_array_has_one_task_run_again(cluster: Cluster) -> None:
    template = Template("train-seeds.sbatch", "seeds", steps=300)
    array = template.submit(cluster, "--array=0-1")
    tasks = [Job(cluster, f"{array.number}_{task}") for task in (0, 1)]
    for task in tasks:
        template.await_steps(task)
    cluster.output("scancel", "--signal=USR2", "--batch", tasks[1].number)
    await_result(lambda: tasks[1].restarts == 1, 30.0, lambda: tasks[1].output)
    tasks[1].complete(RESUMED_S)
    tasks[0].complete(RESUMED_S)
    assert [task.restarts for task in tasks] == [0, 1]
    assert "resumed" in tasks[1].output and "resumed" not in tasks[0].output


def test_scancel_is_the_end(cluster: Cluster) -> None:
    """It is not taken for a notice: nothing is queued again."""
    template = Template("train-cpu.sbatch", "cancelled")
    job = template.submit(cluster)
    template.await_steps(job)
    job.cancel()
    assert job.await_end(60.0)["JobState"] == "CANCELLED"
    assert not cluster.output("squeue", "-h").strip()


def test_scancel_is_the_end_of_all_tasks_of_an_array(cluster: Cluster) -> None:
    """The number of its last task is that of the array, of which squeue shows all tasks."""
    template = Template("train-seeds.sbatch", "cancelled-seeds", steps=300)
    array = template.submit(cluster, "--array=0-1")
    tasks = [Job(cluster, f"{array.number}_{task}") for task in (0, 1)]
    for task in tasks:
        template.await_steps(task)
    cluster.output("scancel", array.number)
    for task in tasks:
        assert task.await_end(60.0)["JobState"] == "CANCELLED", task.output
    assert not cluster.output("squeue", "-h").strip()
