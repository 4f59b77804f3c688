"""What baselines are called in tables."""

from __future__ import annotations

from ..figures import OF_GROUPS
from ..settings import Settings, in_groups

__all__ = ["labels"]

_LABELS = {
    "mpi": "MPI_Allreduce",
    "mpi-nonblocking": "MPI_Iallreduce",
    "gloo": "gloo",
    "nccl": "NCCL",
}


def labels(settings: Settings) -> dict[str, str]:
    """Of each baseline that is compared, by its name for `figures.baseline`; in their order.

    Sums of groups are compared with MPI's sums of groups first; other baselines add up all ranks.
    """
    if not in_groups(settings):
        return {name: _LABELS[name] for name in settings.baselines}
    found = {}
    if "mpi" in settings.baselines:
        found[OF_GROUPS] = f"{_LABELS['mpi']} of groups"
    return found | {name: f"{_LABELS[name]} of all" for name in settings.baselines}
