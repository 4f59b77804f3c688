"""Batch scripts for tests: one without a mistake, and changes of it."""

import re

OPTIONS = {
    "job-name": "run",
    "nodes": "2",
    "ntasks-per-node": "4",
    "time": "1:00:00",
    "signal": "USR2@120",
    "requeue": None,
    "open-mode": "append",
    "output": "%x-%j.out",
}
BODY = """
export OMP_NUM_THREADS=1
srun --mpi=pmi2 python train.py
"""
# The batch shell passes the signal on.
BY_SHELL = """
export OMP_NUM_THREADS=1
srun --mpi=pmi2 python train.py &
job=$!
trap 'kill -USR2 "$job"' USR2
while kill -0 "$job"; do wait "$job"; done
"""
REQUEUE = """
if [[ $(squeue -h -j "$SLURM_JOB_ID" -o %T) != *COMPLETING* ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
"""


def script(body: str = BODY, without: str = "", **options: str | None) -> str:
    """A script with these options besides, or in place of, the usual ones."""
    changed = {name.replace("_", "-"): value for name, value in options.items()}
    kept = {name: value for name, value in {**OPTIONS, **changed}.items() if name != without}
    lines = [
        f"#SBATCH --{name}" + ("" if value is None else f"={value}") for name, value in kept.items()
    ]
    return "\n".join(["#!/bin/bash", *lines]) + "\n" + body


def changed(text: str, old: str, new: str) -> str:
    """The text with `new` in the place of `old`, which has to be there."""
    assert old in text, old
    return re.sub(re.escape(old), lambda _: new, text)
