"""Starts the demo as users do."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

LIVENESS_S = 120.0


def launch(folder: Path, ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on that many ranks, 0: without a launcher."""
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks else []
    return subprocess.run(
        [*launcher, sys.executable, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )


def demo(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return launch(folder, ranks, "-m", "wagma", "demo", *options)


def run_of(record: dict[str, Any], algorithm: str) -> dict[str, Any]:
    return next(run for run in record["runs"] if run["algorithm"] == algorithm)
