"""Choice of the total batch, and scaling of the learning rate with it. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, SupportsIndex

import numpy as np

from wagma.inject.checks import check_count
from wagma.theory.cannikin.arguments import check_noise_scale, check_total
from wagma.theory.cannikin.cluster import ClusterModel
from wagma.theory.cannikin.optimum import OptPerf, check_feasible, fill, planned, rounded
from wagma.theory.checks import check_time

Scaling = Literal["adascale", "sqrt", "none"]


@dataclass(frozen=True, eq=False)
class BatchChoice:
    """Result of `choose_total_batch`.

    Attributes:
        total_batch: B, samples.
        plan: its best division in integers.
        goodput: its progress, in samples of the base batch per second.
    """

    total_batch: int
    plan: OptPerf
    goodput: float


def goodput(total_batch: float, time: float, noise_scale: float, base_batch: float) -> float:
    """Return the progress per second: throughput B / T times statistical efficiency (Pollux).

    The efficiency is (B_noise + B_0) / (B_noise + B): the progress that a sample of a batch of B
    makes, relative to one of a batch of B_0. It is 1 at B = B_0.

    Args:
        total_batch: B, samples, > 0.
        time: T of a step, in seconds, > 0.
        noise_scale: B_noise, samples, >= 0; math.inf: larger is always better.
        base_batch: B_0, samples, > 0.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number.
    """
    total, base = check_total("total_batch", total_batch), check_total("base_batch", base_batch)
    throughput = total / check_time("time", time, positive=True)
    return throughput * _efficiency(total, check_noise_scale(noise_scale), base)


def choose_total_batch(
    cluster: ClusterModel,
    candidates: Sequence[SupportsIndex],
    noise_scale: float,
    base_batch: float,
) -> BatchChoice:
    """Return the candidate with the largest goodput, divided by `integer_batches`.

    The smallest candidate wins a tie.

    Args:
        cluster: the model.
        candidates: total batches, samples, each >= 1, at least one, in any order.
        noise_scale: B_noise, samples, >= 0; math.inf: larger is always better.
        base_batch: B_0, samples, > 0.

    Raises:
        ValueError: there is no candidate, a candidate is outside the nodes' limits, or a number is
            out of its range.
        TypeError: a value is of a wrong type.
    """
    totals = sorted({check_count("candidates", total, 1) for total in candidates})
    if not totals:
        raise ValueError("candidates is empty: at least one total batch is needed")
    scale, base = check_noise_scale(noise_scale), check_total("base_batch", base_batch)
    for total in (totals[0], totals[-1]):
        check_feasible(cluster, total)
    shares = fill(cluster, np.array(totals, np.float64))
    # Real-valued batches are never slower than integers, so they bound each candidate's goodput.
    bounds = [
        goodput(total, time, scale, base)
        for total, time in zip(totals, cluster.lines.times(shares).max(axis=1), strict=True)
    ]
    best: BatchChoice | None = None
    for i in sorted(range(len(totals)), key=lambda i: (-bounds[i], i)):
        # A bound and the goodput that it bounds may differ by rounding alone.
        if best is not None and bounds[i] * (1 + 1e-9) < best.goodput:
            break
        plan = planned(cluster, rounded(cluster, shares[i], totals[i]))
        found = BatchChoice(totals[i], plan, goodput(totals[i], plan.time, scale, base))
        if best is None or (found.goodput, -found.total_batch) > (best.goodput, -best.total_batch):
            best = found
    assert best is not None  # the first one
    return best


def adascale(total_batch: float, noise_scale: float, base_batch: float) -> float:
    """Return AdaScale's gain, the factor for the learning rate of SGD.

    r = (tr(Sigma) / B_0 + |G|^2) / (tr(Sigma) / B + |G|^2), which depends on B_noise =
    tr(Sigma) / |G|^2 alone: 1 without noise, B / B_0 with nothing else. A step with B is worth r
    steps with B_0.

    Args:
        total_batch: B, samples, > 0.
        noise_scale: B_noise, samples, >= 0; math.inf: noise alone.
        base_batch: B_0, for which the learning rate was chosen, samples, > 0.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number.
    """
    total, base = check_total("total_batch", total_batch), check_total("base_batch", base_batch)
    return total / base * _efficiency(total, check_noise_scale(noise_scale), base)


def sqrt_scaling(total_batch: float, base_batch: float) -> float:
    """Return sqrt(B / B_0), the factor for the learning rate of Adam and its variants.

    Args:
        total_batch: B, samples, > 0.
        base_batch: B_0, for which the learning rate was chosen, samples, > 0.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is no number.
    """
    total, base = check_total("total_batch", total_batch), check_total("base_batch", base_batch)
    return math.sqrt(total / base)


def rate_factor(
    scaling: Scaling, total_batch: float, noise_scale: float, base_batch: float
) -> float:
    """Return the factor for learning rates: that of `adascale` or `sqrt_scaling`; "none": 1."""
    if scaling == "none" or total_batch == base_batch:
        return 1.0
    if scaling == "sqrt":
        return sqrt_scaling(total_batch, base_batch)
    return adascale(total_batch, noise_scale, base_batch)


def _efficiency(total: float, scale: float, base: float) -> float:
    """Return (B_noise + B_0) / (B_noise + B)."""
    return 1.0 if math.isinf(scale) else (scale + base) / (scale + total)
