"""Expected order statistics of computing times: how long the fastest k of n take. Pure."""

from __future__ import annotations

from typing import SupportsIndex

from wagma.inject.checks import check_count
from wagma.theory.checks import check_time

__all__ = ["exponential_mean"]


def exponential_mean(mean: float, k: SupportsIndex, n: SupportsIndex) -> float:
    """Return E[X_(k)] of n exponential times: mean (H_n - H_{n-k}).

    This is the time of an update where the late stop computing at once (K-sync, fastest-k). Where
    they first compute to the end, as in `wagma.theory.replay`, an update takes longer.

    Args:
        mean: mean of a time, >= 0.
        k: which of the ordered times, 1 (the fastest) to n.
        n: number of times, >= 1.
    """
    scale, count = check_time("mean", mean), check_count("n", n, 1)
    return scale * sum(1 / (count - i) for i in range(check_count("k", k, 1, count)))
