"""Commands as users start them, under the mpiexec that is tested."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from launched import clean_environment

LIVENESS_S = 120.0
# Writes the output and status of each command line to files; exits with the last one's status.
IN_TURN = """
import json, os, sys, traceback
from wagma.cli import main
from wagma.launch.environment import launched_rank

folder, *lines = sys.argv[1:]
for number, line in enumerate(lines):
    place = f"{folder}/{number}.{launched_rank(os.environ)}"
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{place}.{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, descriptor)
        os.close(file)
    environment, words = json.loads(line)
    os.environ.update(environment)
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        from mpi4py import MPI
        MPI.COMM_WORLD.Abort(1)  # others would wait
    for name in environment:
        del os.environ[name]
    sys.stdout.flush()
    sys.stderr.flush()
    with open(f"{place}.status", "w") as file:
        file.write(str(status))
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()  # launchers end the others with the first to end
sys.exit(status)
"""
# Without what this process's launcher has set; Open MPI's may run as root if it may here.
CLEAN = clean_environment() | {
    name: value for name, value in os.environ.items() if name.startswith("OMPI_ALLOW_RUN_AS_ROOT")
}


def launcher() -> list[str]:
    """The words of mpiexec."""
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    return shlex.split(mpiexec)


def complete(
    words: list[str], timeout: float = LIVENESS_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command line to its end."""
    return subprocess.run(
        words,
        env={**CLEAN, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def unlike(
    *ranks: list[str], timeout: float = LIVENESS_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a rank with each of the command lines to its end."""
    words = [word for rank in ranks for word in (":", "-n", "1", *rank)]
    return complete([*launcher(), *words[1:]], timeout, **environment)


def in_turn(
    folder: Path,
    lines: Sequence[Sequence[Sequence[str]]],
    environments: Sequence[dict[str, str]] = (),
    timeout: float = LIVENESS_S,
    **environment: str,
) -> list[subprocess.CompletedProcess[str]]:
    """Runs command lines one after the other in the same processes, whose start takes longest.

    Args:
        folder: for what they print.
        lines: of each command line the words after "python -m wagma", of every rank.
        environments: what is set for each alone.
        timeout: seconds for all together.
        environment: what is set for all.
    """
    given = environments or [{}] * len(lines)
    ranks = [
        [sys.executable, "-c", IN_TURN, str(folder)]
        + [json.dumps(one) for one in zip(given, of_rank, strict=True)]
        for of_rank in zip(*lines, strict=True)
    ]
    done = unlike(*ranks, timeout=timeout, **environment)

    def ended(number: int) -> subprocess.CompletedProcess[str]:
        def found(what: str) -> list[str]:
            return [file.read_text() for file in sorted(folder.glob(f"{number}.*.{what}"))]

        out, said, statuses = found("stdout"), found("stderr"), found("status")
        assert len(statuses) == len(ranks), (lines[number], out, said, done.stderr)
        assert len(set(statuses)) == 1, (lines[number], statuses)
        return subprocess.CompletedProcess(
            lines[number], int(statuses[0]), "".join(out), "".join(said)
        )

    each = [ended(number) for number in range(len(lines))]
    assert done.returncode == each[-1].returncode, done.stderr
    return each
