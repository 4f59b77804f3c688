"""Restart of a saved job, by Slurm or by a batch script that checks the exit code."""

import shutil
import signal
import subprocess

from wagma.launch.logs import RankLogger

EXIT_RESTART = 85  # asks the batch script to restart the program; Linux's ERESTART
_PATIENCE_S = 60.0


def requeue(job: str, log: RankLogger) -> bool:
    """Have Slurm end this job and start it again; return whether it will.

    A job that scancel or its time limit is ending is not requeued, because it was meant to end.
    """
    if shutil.which("scontrol") is None:  # as in many containers
        log.warning(
            "scontrol is not found, and job %s is not requeued: exit code %d asks the batch script "
            "to do that",
            *(job, EXIT_RESTART),
        )
        return False
    if "COMPLETING" in (_state(job) or ""):  # one line for each component of a job
        log.warning("job %s is ending, by scancel or its time limit: it is not requeued", job)
        return False
    done, output = _run("scontrol", "requeue", job)
    if done:
        log.info("job %s is requeued", job)
    else:
        log.warning(
            "scontrol requeue %s: %s; exit code %d asks the batch script to start the job again. "
            "Was it submitted with --requeue?",
            *(job, output, EXIT_RESTART),
        )
    return done


def _state(job: str) -> str | None:
    if shutil.which("squeue") is None:
        return None
    known, output = _run("squeue", "-h", "-j", job, "-o", "%T")
    return output if known else None


def _run(*command: str) -> tuple[bool, str]:
    """Return whether a command succeeds, and its output."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    # Slurm kills all processes of a job that it requeues, perhaps scontrol too.
    if done.returncode in (0, -signal.SIGTERM):
        return True, done.stdout.strip()
    return False, (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
