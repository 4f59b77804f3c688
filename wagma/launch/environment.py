"""What launchers tell a process in its environment. Nothing else in wagma names their variables."""

from collections.abc import Mapping
from math import prod
from typing import Literal, NamedTuple


class Launcher(NamedTuple):
    """A launcher of ranks, and the variables in which it numbers them."""

    name: str  # its name in messages
    rank: str  # variable of a process's rank
    size: str  # variable of the number of ranks; "": there is none
    local_rank: str  # variable of the rank within the node; "": there is none


HYDRA = Launcher("MPICH's mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")
OPEN_MPI = Launcher(
    "Open MPI's mpiexec",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
)
PMIX = Launcher("a launcher that speaks PMIx", "PMIX_RANK", "", "")
SRUN = Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
TORCHRUN = Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK")

VARIABLES = tuple(
    name for launcher in (HYDRA, OPEN_MPI, PMIX, SRUN, TORCHRUN) for name in launcher[1:] if name
)
# How many tasks an allocation of Slurm is for: which are set depends on how it was asked for.
_TASKS = (("SLURM_NTASKS",), ("SLURM_NPROCS",), ("SLURM_NTASKS_PER_NODE", "SLURM_NNODES"))
_JOB = "SLURM_JOB_ID"
ALLOCATION = (_JOB, *(name for names in _TASKS for name in names))
_OF_MPI = (OPEN_MPI, HYDRA, PMIX)
_RUN = "TORCHELASTIC_RUN_ID"  # set by torchrun alone, in each process that it starts
_NO_RUN = "none"  # its value where the user gives it no name
_STEP = "SLURM_STEP_ID"
_RESTARTS = "SLURM_RESTART_COUNT"  # unset before the first restart
# Slurm numbers the steps that srun starts from 0; batch scripts and interactive shells, which are
# steps as well, have the last of the 32-bit numbers.
_SRUN_STEPS = 0xFFFFFFF0
_AUTO = 'pass comm="auto" (or None), with which the ranks that torchrun started meet without MPI'
_WORLD_OF_ONE = {
    HYDRA: "Use the mpiexec of the MPI that mpi4py loads, not MPICH's",
    OPEN_MPI: "Use the mpiexec of the MPI that mpi4py loads, not Open MPI's",
    SRUN: "Start it with `srun --mpi=pmi2` (MPICH) or `srun --mpi=pmix` (Open MPI)",
    TORCHRUN: f"In a program, {_AUTO}; or start the ranks with mpiexec, as "
    "`mpiexec -n 4 python ...`; or unset WORLD_SIZE if it is left over",
}


def in_srun_step(environ: Mapping[str, str]) -> bool:
    """Return whether srun started this process.

    The variables of an allocation do not show that: batch scripts have them, too.
    """
    step = _number(environ, _STEP)
    return step is not None and step < _SRUN_STEPS


def launched_rank(environ: Mapping[str, str]) -> int:
    """Return this process's rank from its launcher, before MPI is initialised; 0 without one.

    RANK alone does not count: it may be left over in a shell.
    """
    launchers = _launchers(environ)
    if _RUN not in environ:
        launchers.remove(TORCHRUN)
    return next((n for one in launchers if (n := _number(environ, one.rank)) is not None), 0)


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Return this process's rank within its node from its launcher; None: it is not known."""
    numbers = (_number(environ, launcher.local_rank) for launcher in _launchers(environ))
    return next((number for number in numbers if number is not None), None)


def mpi_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """Return the MPI launcher that started this process; None: there is none."""
    return next((launcher for launcher in _OF_MPI if launcher.rank in environ), None)


def job_number(environ: Mapping[str, str]) -> str | None:
    """Return the number of this Slurm job, or of this task of an array; None: there is no job.

    A heterogeneous job is requeued as a whole, by its leader's number.
    """
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return environ.get("SLURM_HET_JOB_ID") or environ.get(_JOB)


def job_end(environ: Mapping[str, str]) -> float | None:
    """Return when Slurm ends this job, in seconds since 1970; None: it is not known."""
    try:
        return float(environ.get("SLURM_JOB_END_TIME", ""))
    except ValueError:
        return None


def allocated_tasks(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the variables and the number of tasks of a Slurm allocation for several tasks."""
    if _JOB not in environ:
        return None
    for names in _TASKS:
        numbers = [_number(environ, name) for name in names]
        known = [number for number in numbers if number is not None]
        if len(known) == len(names):
            tasks = prod(known)
            return (" x ".join(names), tasks) if tasks > 1 else None
    return None


def torchrun_id(environ: Mapping[str, str]) -> str:
    """Return the user's name for this run of torchrun; empty: there is none."""
    name = environ.get(_RUN, "")
    return "" if name == _NO_RUN else name


def torchrun_address(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Return run, address and port, which identify a torchrun job; each may be empty."""
    return environ.get(_RUN, ""), environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")


def torchrun_restarts(environ: Mapping[str, str]) -> str:
    """Return how often torchrun has restarted the ranks, as a string; empty: not known."""
    return environ.get("TORCHELASTIC_RESTART_COUNT", "")


def local_variable(variable: str) -> str:
    """Return torchrun's variable for the ranks of a node, given the one for all ranks."""
    return f"LOCAL_{variable}"


def restart_count(environ: Mapping[str, str]) -> int:
    """Return how often Slurm has requeued this job; 0 without Slurm."""
    return _number(environ, _RESTARTS) or 0


def started_by_mpiexec(environ: Mapping[str, str]) -> int:
    """Return how many ranks mpiexec has started; 0: not known."""
    return max(_number(environ, launcher.size) or 0 for launcher in _OF_MPI)


def started_ranks(environ: Mapping[str, str]) -> tuple[Launcher, int] | None:
    """Return the launcher of this process and its number of ranks; None: neither is known.

    torchrun comes first, because another launcher may have started it. mpiexec comes before Slurm,
    because it may run in a step of Slurm.
    """
    for launcher in _launchers(environ):
        ranks = _number(environ, launcher.size)
        # A shell in a step of one task may use any launcher.
        if ranks is not None and (launcher, ranks) != (SRUN, 1):
            return launcher, ranks
    return None


def alone_by_mistake(environ: Mapping[str, str]) -> str:
    """Return what is wrong if MPI.COMM_WORLD has one rank; "": nothing."""
    launcher, ranks = started_ranks(environ) or (None, 0)
    if launcher is None or ranks < 2:
        return ""
    remedy = _WORLD_OF_ONE[SRUN if launcher == HYDRA and in_srun_step(environ) else launcher]
    return (
        f"{launcher.size} is {ranks}, but MPI.COMM_WORLD has one rank: each process would train "
        f"alone. {remedy}. For a single rank pass MPI.COMM_SELF"
    )


def meeting_place(environ: Mapping[str, str]) -> Literal["variables", "MPI", "alone"]:
    """Return how "auto" finds the ranks of this process's job.

    Returns:
        "variables": by RANK and WORLD_SIZE, which torchrun sets. "MPI": by MPI.COMM_WORLD.
        "alone": no launcher started this process.
    """
    if _RUN in environ:
        return "variables"
    if mpi_launcher(environ) is not None:
        return "MPI"
    if environ.get(TORCHRUN.rank) and environ.get(TORCHRUN.size):
        return "variables"
    started = started_ranks(environ)
    return "MPI" if started is not None and started[0] == SRUN else "alone"


def _launchers(environ: Mapping[str, str]) -> list[Launcher]:
    """Return the launchers that may have started this process, the most credible one first."""
    srun = [SRUN] if in_srun_step(environ) else []
    others = [*_OF_MPI, *srun]
    return [TORCHRUN, *others] if _RUN in environ else [*others, TORCHRUN]


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None
