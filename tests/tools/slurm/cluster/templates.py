"""The batch scripts of slurm/ as users have them: two lines set, and submitted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cluster import Cluster
from jobs import Job

ROOT = Path(__file__).resolve().parents[4]
STEPS = 1000
PAUSE = 0.1  # in each step of the first run, which would take longer than its time limit
RANKS = {"ntasks-per-node": 2, "cpus-per-task": 1}
RESUMED_S = 180.0


@dataclass(frozen=True)
class Template:
    """A batch script whose program is slurm/train.py with AllreduceSGD.

    `name`: of the run. `launch`: what stands before the program. `by_mpiexec`: as the script says.
    """

    script: str
    name: str
    launch: str = ""
    by_mpiexec: bool = False
    steps: int = STEPS

    def submit(self, cluster: Cluster, *options: str, path: str = "") -> Job:
        """Submit it to the folder that has what the repository has.

        `path`: what PATH is in the batch script and below.
        """
        text = (ROOT / "slurm" / self.script).read_text()
        for option, value in {"job-name": self.name, **RANKS}.items():
            text = replaced(text, rf"^#SBATCH --{option}=\S*", f"#SBATCH --{option}={value}")
        text = replaced(text, r"^program=.*$", self._program(text))
        if self.by_mpiexec:
            text = replaced(text, r"^# (ranks=.*MPIEXEC.*)$", r"\1")
        if path:
            text = replaced(text, r"^set -euo pipefail$", f"set -euo pipefail\nexport PATH={path}")
        show_scripts(cluster)
        return cluster.submit(text, *options)

    def exported(self, cluster: Cluster, task: str = "") -> bytes:
        """The model that it has trained."""
        return (cluster.work / f"{self.name}{task}.safetensors").read_bytes()

    def await_steps(self, job: Job, seconds: float = 120.0) -> None:
        """Wait until it trains: a checkpoint is written before a step is a hundredth."""
        job.await_output("version 100:", seconds)

    def _program(self, text: str) -> str:
        """The line of the program, which only takes its time in the first run."""
        (given,) = re.findall(r'(?:--seed "\$seed" )?--checkpoints "([^"]*)"', text)
        task = "${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}"
        return (
            f'[[ -d "{given}" ]] && pause=0 || pause={PAUSE}\n'
            f"program=({self.launch} python slurm/train.py --algorithm allreduce "
            f'--steps {self.steps} --every 25 --pause "$pause" --checkpoints "{given}" '
            f'--export "$SLURM_JOB_NAME{task}.safetensors")'
        )


def show_scripts(cluster: Cluster) -> None:
    """Have slurm/ where jobs are submitted, as in the repository."""
    folder = cluster.work / "slurm"
    if not folder.exists():
        folder.symlink_to(ROOT / "slurm")


def replaced(text: str, pattern: str, new: str) -> str:
    """The text with its one line that matches made anew."""
    found, count = re.subn(pattern, new, text, flags=re.MULTILINE)
    assert count == 1, f"{count} lines match {pattern}:\n{text}"
    return found
