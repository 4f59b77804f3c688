"""Profiles as if ranks had trained synchronously."""

import numpy as np

from wagma.profile import TrainingProfile
from wagma.theory.checks import Floats


def profile_of(
    compute: Floats, *, parts: int = 1, communication: float = 1e-4, hosts: int = 1
) -> TrainingProfile:
    """Return the profile of ranks that compute so long, float64 (P, n) seconds."""
    ranks, steps = compute.shape
    shares = np.random.default_rng(3).dirichlet([20.0] * parts, compute.shape)
    calls = ranks * steps
    return TrainingProfile(
        input=np.zeros(compute.shape),
        compute=compute,
        wait=compute.max(axis=0) - compute,
        communication=np.full(compute.shape, communication),
        hosts=tuple(f"host{rank * hosts // ranks}" for rank in range(ranks)),
        micro_batches=None if parts == 1 else compute[:, :, np.newaxis] * shares,
        model_bytes=1 << 20,
        communication_sizes={1 << 20: (calls, calls * communication)},
        method="DistributedDataParallel",
        hook_seconds=np.zeros(ranks),
    )


def delayed(ranks: int, steps: int = 200, share: float = 0.25) -> Floats:
    """Return steps of 100 ms, of which a share takes 400 ms, on any rank."""
    rng = np.random.default_rng(ranks)
    times: Floats = 0.1 + 0.001 * rng.random((ranks, steps))
    times[rng.random(times.shape) < share] += 0.3
    return times
