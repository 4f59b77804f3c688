"""The state of a training beside the model, saved and resumed at one version."""

from typing import Any

from torch.optim import Optimizer

from wagma.launch.logs import RankLogger
from wagma.training.policies.base import ComputePolicy


def save(policy: ComputePolicy, inner: Optimizer) -> dict[str, Any]:
    """Return the state of `inner`, extended by those of `policy` and its algorithm."""
    algorithm = policy.algorithm
    state = inner.state_dict()
    state["wagma"] = {
        "version": algorithm.version,
        "algorithm": type(algorithm).__name__,
        "state": algorithm.state(),
        "policy": type(policy).__name__,
        "policy_state": policy.state(),
    }
    return state


def load(
    policy: ComputePolicy, inner: Optimizer, state_dict: dict[str, Any], log: RankLogger
) -> None:
    """Load what `save` returned; collective. See `wagma.DistributedOptimizer.load_state_dict`."""
    algorithm = policy.algorithm
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
        if saved.get("policy") == type(policy).__name__:
            policy.load_state(saved["policy_state"])

    with algorithm.meet() as meeting:
        meeting.exchange(restore, last=True)
    algorithm.after_load()
