"""What baselines are called in tables, by their names on the command line."""

__all__ = ["LABELS"]

LABELS = {
    "mpi": "MPI_Allreduce",
    "mpi-nonblocking": "MPI_Iallreduce",
    "gloo": "gloo",
    "nccl": "NCCL",
}
