"""Finds MPIs and runs ranks under them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[2]  # the root of the sources, if it is run from there
LINES_SHOWN = 40

# Ranks share the cores. Open MPI refuses to run as root unless it is told to.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


class LaunchError(Exception):
    """The ranks failed or did not end; holds the end of what they printed."""


@dataclass(frozen=True)
class Environment:
    """A Python with wagma and mpi4py, and the launcher of the MPI that it loads."""

    mpi: str  # "mpich" or "openmpi"
    python: Path  # the interpreter
    mpiexec: Path  # the launcher

    def command(self, ranks: int, bound: bool) -> list[str]:
        """Return the launcher's part of the command; `bound`: every rank has a core of its own."""
        mpiexec = [str(self.mpiexec), "-n", str(ranks)]
        target = "core" if bound else "none"
        if self.mpi == "openmpi":
            return [*mpiexec, "--bind-to", target, *([] if bound else ["--oversubscribe"])]
        return [*mpiexec, "-bind-to", target]


def defaults() -> list[Path]:
    """Return the environments in the source tree, and the one that runs this."""
    found = [folder for name in (".venv", ".venv-openmpi") if (folder := SOURCES / name).is_dir()]
    here = Path(sys.prefix)
    return found if here in found else [*found, here]


def environments(folders: Iterable[Path]) -> tuple[list[Environment], list[str]]:
    """Return the usable ones among `folders`, and why others are not.

    A virtual environment without a launcher of its own uses the one in PATH, as on a cluster.
    """
    found, left_out = [], []
    for folder in folders:
        python, mpiexec = folder / "bin/python", folder / "bin/mpiexec"
        if not mpiexec.exists() and (in_path := shutil.which("mpiexec")):
            mpiexec = Path(in_path)
        if not (mpiexec.exists() and python.exists()):
            left_out.append(f"{folder}: no bin/mpiexec and bin/python there")
            continue
        version = subprocess.run(
            [mpiexec, "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
        if "HYDRA" in version:
            found.append(Environment("mpich", python, mpiexec))
        elif "Open MPI" in version or "OpenRTE" in version:
            found.append(Environment("openmpi", python, mpiexec))
        else:
            left_out.append(f"{mpiexec}: it is neither MPICH's nor Open MPI's")
    return found, left_out


def run(
    environment: Environment,
    ranks: int,
    bound: bool,
    thread_level: str,
    plan: dict[str, Any],
    timeout: float,
) -> dict[str, Any]:
    """Return what the ranks measured.

    Args:
        environment: whose MPI and Python are used.
        ranks: number of ranks.
        bound: every rank gets a core of its own.
        thread_level: that mpi4py asks for.
        plan: see rank.py.
        timeout: seconds, after which the ranks are stopped.

    Raises:
        LaunchError: they failed or did not end in time.
    """
    # What is set for wagma itself stays outside: rows say what they measure.
    outside = {name: one for name, one in os.environ.items() if not name.startswith("WAGMA_")}
    variables = {**outside, **VARIABLES, "MPI4PY_RC_THREAD_LEVEL": thread_level}
    with tempfile.TemporaryDirectory(prefix="wagma-benchmark-") as folder:
        source, target = Path(folder, "plan.json"), Path(folder, "report.json")
        source.write_text(json.dumps(plan))
        module = ["-m", "wagma.benchmarks.table.rank", str(source), str(target)]
        command = [*environment.command(ranks, bound), str(environment.python), *module]
        with Path(folder, "log").open("w+b") as log:
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(timeout)
                why = f"exit status {status}" if status else None
            except subprocess.TimeoutExpired:
                why = f"not done after {timeout:g} s"
            finally:
                _stop(process)
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
        if why is None and target.exists():
            report: dict[str, Any] = json.loads(target.read_text())
            return report
    shown = "\n".join(lines[-LINES_SHOWN:])
    raise LaunchError(f"{' '.join(command)}: {why or 'no report'}\n{shown}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a launcher that still runs, which ends its ranks; then by force."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, signum)
            process.wait(10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            print(f"{process.args!r} does not end", file=sys.stderr)
