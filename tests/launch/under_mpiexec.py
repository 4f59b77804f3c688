"""Commands as users start them, under the mpiexec that is tested."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from launched import clean_environment

LIVENESS_S = 120.0
# Without what this process's launcher has set; Open MPI's may run as root if it may here.
CLEAN = clean_environment() | {
    name: value for name, value in os.environ.items() if name.startswith("OMPI_ALLOW_RUN_AS_ROOT")
}


def launcher() -> list[str]:
    """The words of mpiexec."""
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    return shlex.split(mpiexec)


def complete(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line to its end."""
    return subprocess.run(
        words,
        env={**CLEAN, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )


def unlike(*ranks: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a rank with each of the command lines to its end."""
    words = [word for rank in ranks for word in (":", "-n", "1", *rank)]
    return complete([*launcher(), *words[1:]])
