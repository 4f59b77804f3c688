"""Error over updates: Lemma 3 and Theorems 3 and 4 of Dutta et al. (2018). Pure."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.theory.checks import Floats, check_passed, check_share, check_time, shaped
from wagma.theory.convergence import Descent
from wagma.theory.ksync.methods import check_method


def error_bound(
    method: str,
    j: npt.ArrayLike,
    *,
    eta: float,
    L: float,
    sigma2: float,
    c: float,
    k: SupportsIndex,
    m: SupportsIndex,
    gap: float,
    gamma: float = 0.0,
    p0: float = 0.0,
) -> float | Floats:
    """Return the bound on E[F(w_j)] - F* of a strongly convex objective: Lemma 3 and Theorem 3.

    floor + (1 - eta c gamma')^j (gap - floor), floor = eta L sigma^2 / (2 c gamma' K m), with
    gamma' = 1 for k-sync and k-batch-sync, and 1 - gamma + p0 / 2 for k-async and k-batch-async.

    It holds for eta <= 1 / (2 L (M_G / (K m) + 1)) where gradients are fresh, and for
    eta <= 1 / (2 L (M_G / (K m) + 1 / K)) where they are stale. M_G bounds how the variance grows
    with the gradient. It is not known here, so that neither is checked.

    Args:
        method: one of `METHODS`.
        j: number of updates, >= 0: a number or an array.
        eta: learning rate, > 0, eta c gamma' < 1.
        L: Lipschitz constant of the gradient, > 0.
        sigma2: sigma^2, bound on the variance of the gradient of one sample, >= 0.
        c: parameter of strong convexity, > 0 and at most L.
        k: K, gradients per update, >= 1.
        m: samples of a mini-batch, >= 1.
        gap: F(w_0) - F*, >= 0.
        gamma: how stale gradients are, 0 to 1:
            E[|grad F(w_j) - grad F(w_tau)|^2] <= gamma E[|grad F(w_j)|^2].
        p0: a lower bound on the probability that a gradient is fresh, 0 to 1; 1 / P for exponential
            times and K = 1 (Lemma 2).

    Returns:
        The bound, in the shape of `j`.

    Raises:
        ValueError: a value is out of its range, or gamma or p0 is given for fresh gradients.
        TypeError: a value is no number.
    """
    descent = Descent(eta, L, sigma2, c, gap, _share(method, gamma, p0))
    return shaped(descent.error(check_passed("j", j), _batch(k, m)))


def nonconvex_bound(
    method: str,
    j: npt.ArrayLike,
    *,
    eta: float,
    L: float,
    sigma2: float,
    k: SupportsIndex,
    m: SupportsIndex,
    gap: float,
    gamma: float = 0.0,
    p0: float = 0.0,
) -> float | Floats:
    """Return the bound on the mean of E[|grad F(w_i)|^2], i = 0 to j: Theorem 4, any objective.

    2 gap / ((j + 1) eta gamma') + L eta sigma^2 / (K m gamma'), with gamma' as in `error_bound`,
    and the same conditions on the learning rate.

    Args:
        method: one of `METHODS`.
        j: J, index of the last update, >= 0: a number or an array.
        eta: learning rate, > 0.
        L: Lipschitz constant of the gradient, > 0.
        sigma2: sigma^2, bound on the variance of the gradient of one sample, >= 0.
        k: K, gradients per update, >= 1.
        m: samples of a mini-batch, >= 1.
        gap: F(w_0) - min F, >= 0.
        gamma: how stale gradients are, 0 to 1, as in `error_bound`.
        p0: a lower bound on the probability that a gradient is fresh, 0 to 1.

    Returns:
        The bound, in the shape of `j`.

    Raises:
        ValueError: a value is out of its range, or gamma or p0 is given for fresh gradients.
        TypeError: a value is no number.
    """
    share, updates = _share(method, gamma, p0), check_passed("j", j)
    rate, lipschitz = check_time("eta", eta, positive=True), check_time("L", L, positive=True)
    variance, start = check_time("sigma2", sigma2), check_time("gap", gap)
    descent = 2 * start / ((updates + 1) * rate * share)
    return shaped(np.asarray(descent + lipschitz * rate * variance / (_batch(k, m) * share)))


def _batch(k: SupportsIndex, m: SupportsIndex) -> int:
    """Return the samples of an update, K m."""
    return check_count("k", k, 1) * check_count("m", m, 1)


def _share(method: str, gamma: float, p0: float) -> float:
    """Return gamma', the share of the descent that staleness leaves."""
    stale, fresh = check_share("gamma", gamma), check_share("p0", p0)
    if not check_method(method).endswith("async"):
        for name, value in (("gamma", stale), ("p0", fresh)):
            if value:
                raise ValueError(
                    f"{name} is {value!r}: all gradients of {method} are fresh; leave {name} out"
                )
        return 1.0
    if (share := 1 - stale + fresh / 2) <= 0:
        raise ValueError("gamma is 1.0 and p0 is 0.0: nothing is bounded; gamma < 1 is needed")
    return share
