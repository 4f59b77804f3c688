"""What a training has to save beside the model, and how ranks continue at one version."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from wagma.launch.logs import RankLogger
from wagma.training.strategies.base import Algorithm

__all__ = ["load", "save"]


def save(algorithm: Algorithm, inner: Optimizer) -> dict[str, Any]:
    """Return the state of `inner`, with that of `algorithm` beside it."""
    state = inner.state_dict()
    state["wagma"] = {
        "version": algorithm.version,
        "algorithm": type(algorithm).__name__,
        "state": algorithm.state(),
    }
    return state


def load(
    algorithm: Algorithm, inner: Optimizer, state_dict: dict[str, Any], log: RankLogger
) -> None:
    """Load what `save` gave; collective. See `wagma.DistributedOptimizer.load_state_dict`."""
    saved: dict[str, Any] = {}

    def version() -> int:
        saved.update(state_dict.get("wagma", {"version": algorithm.version}))
        return int(saved["version"])

    with algorithm.meet() as meeting:
        versions = meeting.exchange(version, last=True)
    if len(set(versions)) > 1 and algorithm.rank == 0:
        log.warning("the ranks saved versions %s; all continue at %d", versions, min(versions))
    algorithm.resume(min(versions))

    def restore() -> None:
        inner.load_state_dict(state_dict)
        if saved.get("algorithm") == type(algorithm).__name__:
            algorithm.load_state(saved["state"])

    with algorithm.meet() as meeting:
        meeting.exchange(restore, last=True)
