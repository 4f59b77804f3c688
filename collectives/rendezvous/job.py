"""The job of this process without MPI, as a launcher describes it in the environment."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from ...launch.environment import (
    TORCHRUN,
    local_variable,
    mpi_launcher,
    started_by_mpiexec,
    torchrun_address,
    torchrun_id,
    torchrun_restarts,
)

REMEDY = "give each job a name of its own in WAGMA_JOB"

# Variables that differ between the ranks of a launcher.
_OF_A_RANK = re.compile(
    "RANK|LOCAL|PROC|TASK|NODEID|GTIDS|DEVICE|AFFINITY|BIND|^(PMI|PMIX|OMPI|PRTE|HYDI?|OLDPWD|_$)"
)
_START = (
    "start the ranks with torchrun (python -m torch.distributed.run --standalone "
    "--nproc-per-node N), or with mpiexec and pass a communicator: comm=MPI.COMM_WORLD"
)


class Job(NamedTuple):
    """The ranks of a job on this machine."""

    rank: int  # this process, 0 <= rank < size
    size: int  # number of ranks
    key: str  # identifies the job among others of the same user; empty if size is 1
    # digest of the launcher's name for this start of all ranks; empty if it has none
    launch: str = ""
    secret: bool = False  # whether no other user knows the key

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Job:
        """Read RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as torchrun sets them.

        WAGMA_JOB identifies the job or, where it is not set, TORCHELASTIC_RUN_ID, MASTER_ADDR and
        MASTER_PORT; and TORCHELASTIC_RESTART_COUNT, so that a restarted job never meets remaining
        ranks of its earlier start.

        Raises:
            ValueError: a variable is missing or wrong.
            NotImplementedError: the ranks are on several nodes.
        """
        if not environ.get(TORCHRUN.rank) or not environ.get(TORCHRUN.size):
            raise ValueError(_nothing(environ))
        rank, size = _number(environ, TORCHRUN.rank), _number(environ, TORCHRUN.size)
        if rank >= size:
            raise ValueError(
                f"RANK={rank} in the environment must be less than WORLD_SIZE={size}: {_START}"
            )
        _check_mpi(environ, size)
        _check_node(environ, rank, size)
        if size == 1:
            return cls(rank, size, "")
        run = torchrun_id(environ)
        launch = _digest(run) if run else ""
        secret = bool(environ.get("WAGMA_JOB") or launch)
        return cls(rank, size, _key(environ), launch, secret)


ALONE = Job(0, 1, "")


def environment_digest(environ: Mapping[str, str]) -> str:
    """Return a digest that the ranks of one job usually share, and ranks of two jobs do not.

    It covers the launcher's name for this start or, if there is none, the command and the
    environment without variables that differ between ranks. If two jobs with equal digests mix
    their ranks, each rank still does the same work.
    """
    launch = torchrun_id(environ)
    common: list[object] = [launch]
    if not launch:
        rest = {name: text for name, text in environ.items() if not _OF_A_RANK.search(name)}
        common = [sys.orig_argv, sorted(rest.items())]
    return _digest(common)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _nothing(environ: Mapping[str, str]) -> str:
    if launcher := mpi_launcher(environ):
        return (
            f"comm is None, but a launcher of MPI started this process ({launcher.rank} is set, "
            'RANK and WORLD_SIZE are not): pass comm="auto", or MPI.COMM_WORLD (from mpi4py '
            "import MPI)"
        )
    return f"comm is None, and RANK and WORLD_SIZE are not set in the environment: {_START}"


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdecimal()) or (name.endswith("SIZE") and int(text) == 0):
        least = "1 or more" if name.endswith("SIZE") else "0 or more"
        raise ValueError(f"{name}={text!r} in the environment must be a number, {least}: {_START}")
    return int(text)


def _check_mpi(environ: Mapping[str, str], size: int) -> None:
    """Refuse RANK and WORLD_SIZE that are left over in the shell that ran mpiexec."""
    ranks = started_by_mpiexec(environ)
    if ranks > 1 and ranks != size:
        raise ValueError(
            f"WORLD_SIZE={size} in the environment, but an mpiexec started {ranks} ranks: pass "
            "comm=MPI.COMM_WORLD, or unset RANK and WORLD_SIZE where mpiexec is called"
        )


def _check_node(environ: Mapping[str, str], rank: int, size: int) -> None:
    """Check that all ranks are on one node: there local ranks equal global ones."""
    for of, expected in ((TORCHRUN.size, size), (TORCHRUN.rank, rank)):
        name = local_variable(of)
        if environ.get(name) and _number(environ, name) != expected:
            raise NotImplementedError(
                f"{name}={environ[name]} and {of}={expected} in the environment: the job's ranks "
                "are on several nodes, and without MPI they can only be on one. Start them with "
                "mpiexec and pass comm=MPI.COMM_WORLD (from mpi4py import MPI), or start one job "
                "per node"
            )


def _key(environ: Mapping[str, str]) -> str:
    name = environ.get("WAGMA_JOB")
    run, address, port = torchrun_address(environ)
    if not name and not run and not port:
        raise ValueError(
            "nothing in the environment tells this job from others: set WAGMA_JOB to a name that "
            "all of its ranks have and no other job, or MASTER_PORT (torchrun sets it)"
        )
    parts = ["WAGMA_JOB", name] if name else [run, address, port]
    return "\n".join([*parts, torchrun_restarts(environ)])
