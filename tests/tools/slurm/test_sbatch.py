"""slurm/bench.sbatch, with an srun that starts two ranks by mpiexec."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from under_mpiexec import CLEAN, launcher

pytestmark = pytest.mark.launch

ROOT = Path(__file__).resolve().parents[3]
LIVENESS_S = 120.0
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec {launcher} -n 2 "$@"
"""


@pytest.mark.long
def test_each_kind_leaves_a_file_and_a_report_is_made(tmp_path: Path) -> None:
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(SRUN.format(launcher=shlex.join(launcher())))
    srun.chmod(0o755)
    asked = {
        "PATH": f"{srun.parent}:{os.environ['PATH']}",
        "VENV": sys.prefix,
        "SLURM_JOB_ID": "7",
        "RESULTS": str(tmp_path / "wagma-bench-7"),
        "KINDS": "allreduce skew",
        "BENCH_ARGS": "-c --baseline mpi -i 5 -x 1 -m 64:64",
    }
    done = subprocess.run(
        ["bash", "slurm/bench.sbatch"],
        cwd=ROOT,
        env=CLEAN | asked,
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "wagma-bench-7"
    for kind in ("allreduce", "skew"):
        assert json.loads((results / f"{kind}.json").read_text())["settings"]["kind"] == kind
    assert (results / "report.html").exists()
    assert "report.html" in done.stdout
