"""Read what launchers set in the environment, and choose the one to believe."""

import pytest

from wagma.launch import environment
from wagma.launch.environment import HYDRA, OPEN_MPI, SRUN, TORCHRUN, Launcher

TORCHELASTIC = {"TORCHELASTIC_RUN_ID": "none", "RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
BY_HAND = {"RANK": "2", "WORLD_SIZE": "4"}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "0"}
OMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "PMIX_RANK": "3",
}
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "2",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_NTASKS": "6",
}
BATCH = STEP | {"SLURM_STEP_ID": str(0xFFFFFFFB), "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "6"}
SHELL = STEP | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}

# Environment; how ranks meet with "auto"; rank and local rank; who started how many.
CASES: dict[str, tuple[dict[str, str], str, int, int | None, tuple[Launcher, int] | None]] = {
    "nobody": ({}, "alone", 0, None, None),
    "torchrun": (TORCHELASTIC, "variables", 2, 1, (TORCHRUN, 4)),
    "torchrun under mpiexec": (TORCHELASTIC | MPICH, "variables", 2, 1, (TORCHRUN, 4)),
    "torchrun in a step": (TORCHELASTIC | STEP, "variables", 2, 1, (TORCHRUN, 4)),
    "by hand": (BY_HAND, "variables", 0, None, (TORCHRUN, 4)),
    "by hand in srun's shell": (BY_HAND | SHELL, "variables", 0, 0, (TORCHRUN, 4)),
    "WORLD_SIZE alone": ({"WORLD_SIZE": "4"}, "alone", 0, None, (TORCHRUN, 4)),
    "empty": ({"RANK": "", "WORLD_SIZE": ""}, "alone", 0, None, None),
    "MPICH": (MPICH, "MPI", 3, 0, (HYDRA, 8)),
    "MPICH, left over": (MPICH | BY_HAND, "MPI", 3, 0, (HYDRA, 8)),
    "Open MPI": (OMPI, "MPI", 3, 0, (OPEN_MPI, 8)),
    "PMIx": ({"PMIX_RANK": "3"}, "MPI", 3, None, None),
    "MPICH in a step": (MPICH | STEP, "MPI", 3, 0, (HYDRA, 8)),
    "srun": (STEP, "MPI", 5, 2, (SRUN, 6)),
    "srun, ranks by hand": (STEP | BY_HAND, "variables", 5, 2, (SRUN, 6)),
    "batch script": (BATCH, "alone", 0, None, None),
    "srun's shell": (SHELL, "alone", 0, 0, None),
    "no numbers": ({"PMI_RANK": "x", "PMI_SIZE": "-4"}, "MPI", 0, None, None),
}


@pytest.mark.parametrize("case", CASES)
def test_launchers(case: str) -> None:
    environ, place, rank, local, started = CASES[case]
    assert environment.meeting_place(environ) == place
    assert environment.launched_rank(environ) == rank
    assert environment.local_rank(environ) == local
    assert environment.started_ranks(environ) == started
