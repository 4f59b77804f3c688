"""Check batch scripts: each check yields a finding per mistake, with its remedy."""

import re

from wagma.slurm.checks import asked, ranks, signals
from wagma.slurm.checks.findings import Finding, Job
from wagma.slurm.script import Script

__all__ = ["CHECKS", "Finding", "lint"]

CHECKS = (
    asked.file,
    asked.values,
    asked.time,
    asked.array_output,
    asked.gpus,
    asked.missing,
    ranks.no_launcher,
    ranks.no_program,
    ranks.nested,
    ranks.srun_mpi,
    ranks.srun_cores,
    ranks.overcommitted,
    ranks.threads,
    ranks.exit_status,
    signals.asked,
    signals.background,
    signals.forwarded,
    signals.requeued,
)
_SECONDS = re.compile(r"^#.*\bcheckpoint(?:[- ]seconds)?\s*[:=]\s*(\d+(?:\.\d+)?)", re.MULTILINE)
_IGNORED = re.compile(r"#\s*lint:\s*ignore\s+([\w ,-]+)")


def lint(script: Script, checkpoint_s: float | None = None) -> list[Finding]:
    """Return what is wrong with a script, by line.

    A comment `# lint: ignore CODE` anywhere in the script leaves a kind of finding out.

    Args:
        script: as `wagma.slurm.script.read` returns it.
        checkpoint_s: seconds that a checkpoint takes; None: what a comment such as
            `# checkpoint-seconds: 90` says.
    """
    if checkpoint_s is None and (said := _SECONDS.search(script.text)):
        checkpoint_s = float(said[1])
    job = Job(script, checkpoint_s)
    ignored = {
        code for found in _IGNORED.findall(script.text) for code in re.split(r"[\s,]+", found)
    }
    findings = {one for check in CHECKS for one in check(job) if one.code not in ignored}
    return sorted(findings)
