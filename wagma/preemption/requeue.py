"""Start a job again that has saved its training: by Slurm, or by whoever looks at its exit code."""

from __future__ import annotations

import shutil
import signal
import subprocess

from wagma.launch.logs import RankLogger

__all__ = ["EXIT_RESTART", "requeue"]

EXIT_RESTART = 85  # of a program that wants to be started again; ERESTART of Linux
_PATIENCE_S = 60.0


def requeue(job: str, log: RankLogger) -> bool:
    """Have Slurm start this job again, and end it now; return whether it will.

    Refuse where scancel or the time limit is ending the job: it would come back.
    """
    if shutil.which("scontrol") is None:  # as in many containers
        log.warning(
            "scontrol is not found, and job %s is not requeued: exit code %d asks the batch script "
            "to do that",
            *(job, EXIT_RESTART),
        )
        return False
    if _state(job) == "COMPLETING":
        log.warning("job %s is ending, by scancel or its time limit: it is not requeued", job)
        return False
    done, said = _ask("scontrol", "requeue", job)
    if done:
        log.info("job %s is requeued", job)
    else:
        log.warning(
            "scontrol requeue %s: %s; exit code %d asks the batch script to start the job again. "
            "Was it submitted with --requeue?",
            *(job, said, EXIT_RESTART),
        )
    return done


def _state(job: str) -> str | None:
    if shutil.which("squeue") is None:
        return None
    known, said = _ask("squeue", "-h", "-j", job, "-o", "%T")
    return said if known else None


def _ask(*command: str) -> tuple[bool, str]:
    """Return whether a command succeeds, and what it says."""
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
    # Slurm ends a job that it requeues with all its processes: scontrol may be among them.
    if done.returncode in (0, -signal.SIGTERM):
        return True, done.stdout.strip()
    return False, (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
