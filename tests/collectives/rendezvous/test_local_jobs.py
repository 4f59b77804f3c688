"""Collectives of ranks without MPI beside ranks of another job, or another user's process.

As in test_local.py every rank is a process of its own, most of them forked.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import LIVENESS_S, Forked, Launched, addresses

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

MAKE = "attempt(lambda: PartialAllreduce(None, x))\n"
TAKEN = "RuntimeError: RANK={rank} of this job is process {pid} of user "
TWO_PROCESSES = "RANK={rank} in two processes, "


def test_what_is_left_of_a_killed_job_is_not_met() -> None:
    """Killed while it waits for a rank, and while it runs; then the same job is started again."""
    script = "print('here', flush=True)\n" + MAKE + "time.sleep(60 * int(os.environ['STAY']))"
    with (
        Forked(3, script, ranks=(0, 1), environment={"STAY": "1"}) as waiting,
        Forked(3, script, environment={"STAY": "1"}) as running,
    ):
        for job, present in ((waiting, 2), (running, 3)):
            for rank in range(present):
                assert job.line(rank) == "here"
        for rank in range(3):
            assert running.line(rank) == "made"
        waiting.kill()
        running.kill()
        for job in (waiting, running):
            assert job.leftovers() == []
            with Forked(3, script, job=job.job, environment={"STAY": "0"}) as again:
                assert again.outputs() == ["here\nmade"] * 3


def test_a_restarted_job_does_not_meet_a_rank_that_was_forgotten() -> None:
    """Rank 1 of the first attempt still looks for rank 0."""
    with Forked(2, "print('here', flush=True)\n" + MAKE, ranks=()) as ranks:
        forgotten = ranks.start(1, TORCHELASTIC_RESTART_COUNT="0")
        assert ranks.line(1) == "here"
        for rank in (1, 0):
            ranks.start(rank, TORCHELASTIC_RESTART_COUNT="1")
        assert ranks.outputs() == ["here\nmade"] * 2
        assert forgotten.poll() is None
        forgotten.kill()
        forgotten.communicate()


def test_a_second_job_of_the_same_name_is_refused_while_the_first_runs() -> None:
    """The first does not notice; it may even make more collectives."""
    script = MAKE + "together(4)\n" + MAKE
    with Forked(2, script) as first:
        assert [first.line(rank) for rank in range(2)] == ["made"] * 2
        with Forked(2, MAKE, job=first.job) as second:
            for rank, text in enumerate(second.outputs()):
                assert text.startswith(TAKEN.format(rank=rank, pid=first.processes[rank].pid))
                assert "WAGMA_JOB" in text
        for further in (2, 3):
            Path(first.folder, str(further)).touch()
        assert first.outputs() == ["made"] * 2


def test_two_jobs_of_one_name_that_start_at_once_refuse_each_other() -> None:
    """Rank 0 of one meets rank 1 of the other; those that find a number taken tell them."""
    script = "collectives.rendezvous.local_rank0._HOLD_S = 60\n" + MAKE
    with Forked(2, script, ranks=(0,)) as one, Forked(2, script, ranks=(1,), job=one.job) as other:
        while not all(f"{one.address()}-{rank}" in addresses() for rank in range(2)):
            time.sleep(0.001)
        other.start(0)
        refused = other.outputs(0)[0]
        assert refused.startswith(TAKEN.format(rank=0, pid=one.processes[0].pid))
        holder = other.processes[1]
        one.start(1)
        refused = one.outputs(1)[0]
        assert refused.startswith(TAKEN.format(rank=1, pid=holder.pid))
        for process in (one.processes[0], holder):
            text = process.communicate(timeout=LIVENESS_S)[0]
            assert text.startswith("MismatchError: ")
            assert TWO_PROCESSES.format(rank=1) in text


def test_rank_0_twice() -> None:
    """Before rank 1 comes, of which it is not known whose it is."""
    with Forked(2, MAKE, ranks=(0,)) as first:
        while f"{first.address()}-0" not in addresses():
            time.sleep(0.01)
        with Forked(2, MAKE, ranks=(0,), job=first.job) as second:
            text = second.outputs()[0]
        assert text.startswith(TAKEN.format(rank=0, pid=first.processes[0].pid))
        first.start(1)
        for text in first.outputs():
            assert text.startswith("MismatchError: ")
            assert TWO_PROCESSES.format(rank=0) in text
            assert "WAGMA_JOB" in text


def test_what_a_launcher_calls_two_jobs_is_compared() -> None:
    with Forked(2, MAKE, ranks=()) as ranks:
        for rank in range(2):
            ranks.start(rank, TORCHELASTIC_RUN_ID="run " * 1000 + str(rank))
        for text in ranks.outputs():
            assert text.startswith("MismatchError: rank 0, process ")
            assert "TORCHELASTIC_RUN_ID differs" in text
            assert "WAGMA_JOB" in text


@pytest.fixture
def squatted() -> Iterator[Launched]:
    """Ranks of a job whose address belongs to another user's process."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    with Forked(2, MAKE, ranks=()) as ranks:
        squat = f"""
import os, socket, sys, time
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind({ranks.address().replace("@", chr(0), 1)!r})
listener.listen(8)
print("bound", flush=True)
time.sleep(60)
"""
        with subprocess.Popen([sys.executable, "-c", squat], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"bound\n"
            yield ranks
            process.kill()


def test_another_users_process_is_not_met(squatted: Launched) -> None:
    for rank in range(2):
        squatted.start(rank)
    for text in squatted.outputs():
        assert text.startswith("RuntimeError: process ")
        assert "of user 65534" in text
        assert "WAGMA_JOB" in text
