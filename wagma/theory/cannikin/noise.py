"""The gradient noise scale from gradients of uneven batches: Sec. 4.4. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import as_number
from wagma.theory.cannikin.arguments import check_vector
from wagma.theory.checks import Floats, check_time

Weights = Literal["optimal", "paper"]


@dataclass(frozen=True)
class NoiseScale:
    """Estimates of the two parts of the gradient noise scale.

    Both estimates are unbiased, and so may be negative: average them over steps before dividing
    one by the other, as `NoiseScaleAverage` does.

    Attributes:
        sqnorm: estimate of |G|^2, the squared norm of the true gradient.
        trace: estimate of tr(Sigma), the variance of one sample's gradient.
    """

    sqnorm: float
    trace: float

    @property
    def scale(self) -> float:
        """B_noise = tr(Sigma) / |G|^2 in samples, 0 to math.inf; an estimate below 0 counts as 0.

        Without noise it is 0.
        """
        if self.trace <= 0:
            return 0.0
        return self.trace / self.sqnorm if self.sqnorm > 0 else math.inf


def noise_scale(
    batches: npt.ArrayLike,
    local_sqnorms: npt.ArrayLike,
    global_sqnorm: float,
    weights: Weights = "optimal",
) -> NoiseScale:
    """Return an estimate of the noise scale from the gradients of one step.

    Let g_i be the mean gradient of node i's b_i samples, and g = sum_i (b_i / B) g_i. Each node
    gives two unbiased estimates (10):

    G_i = (B |g|^2 - b_i |g_i|^2) / (B - b_i),  S_i = b_i B (|g_i|^2 - |g|^2) / (B - b_i)

    These are averaged with weights that do not depend on the gradients:

    - "optimal": w_i = (B - b_i) / ((n - 1) B) for both, the weights of least variance. This gives
      S = (sum_i b_i |g_i|^2 - B |g|^2) / (n - 1) and G = |g|^2 - S / B.
    - "paper": Theorem 4.1 as printed. These estimates are unbiased too, but not of least variance,
      because Lemma B.5 omits cross terms: they may be worse than the plain mean.

    Args:
        batches: b_i, samples, >= 0, at least two of them above 0: (n,). Nodes with 0 are left out.
        local_sqnorms: |g_i|^2, >= 0: (n,).
        global_sqnorm: |g|^2, >= 0.
        weights: "optimal" or "paper".

    Raises:
        ValueError: a value is out of its range, or one node has the whole batch, B - b_i = 0.
        TypeError: something is no number.
    """
    if weights not in get_args(Weights):
        raise ValueError(f"weights is {weights!r}: one of {', '.join(get_args(Weights))} is needed")
    b = check_vector("batches", batches)
    local = check_vector("local_sqnorms", local_sqnorms, len(b))
    whole = check_time("global_sqnorm", global_sqnorm)
    b, local = b[b > 0], local[b > 0]
    if len(b) < 2:
        has = f"node {int(np.argmax(batches))} has the whole batch" if len(b) else "no node has any"
        raise ValueError(
            f"batches is {np.asarray(batches).tolist()!r}: {has}, and the noise scale is undefined "
            "(B - b_i = 0); at least two nodes with samples are needed"
        )
    total = b.sum()
    if weights == "optimal":
        trace = float((b * (local - whole)).sum() / (len(b) - 1))
        return NoiseScale(float(whole - trace / total), trace)
    rest = total - b
    for_sqnorm, for_trace = _printed_weights(b)
    return NoiseScale(
        float((for_sqnorm * (total * whole - b * local) / rest).sum()),
        float((for_trace * b * total * (local - whole) / rest).sum()),
    )


def _printed_weights(b: Floats) -> tuple[Floats, Floats]:
    """Return the weights of G_i and of S_i as Theorem 4.1 prints them, each of sum 1: (n,)."""
    total, each, other = b.sum(), b[:, None], b[None, :]
    rests = (total - each) * (total - other)
    for_sqnorm = (total**2 - each**2 - other**2) / (total * rests)
    np.fill_diagonal(for_sqnorm, (total + 2 * b) / (total**2 - total * b))
    for_trace = each * other * (total - each - other) / rests
    np.fill_diagonal(for_trace, total * b / (total - b))
    solved = [np.linalg.solve(matrix, np.ones(len(b))) for matrix in (for_sqnorm, for_trace)]
    first, second = (weights / weights.sum() for weights in solved)
    return first, second


def estimate_or_none(
    batches: npt.ArrayLike, local_sqnorms: Sequence[float], global_sqnorm: float
) -> NoiseScale | None:
    """Return `noise_scale`; None if fewer than two nodes have samples or a norm is negative."""
    if np.count_nonzero(batches) < 2 or min(*local_sqnorms, global_sqnorm) < 0:
        return None
    return noise_scale(batches, local_sqnorms, global_sqnorm)


class NoiseScaleAverage:
    """Average noise scales over steps with exponentially falling weights.

    The averages of both parts are divided by the sum of the weights, so that the first steps are
    not biased towards 0. Not thread-safe.

    Args:
        smoothing: weight of a step relative to the next one, at least 0 and less than 1.

    Raises:
        ValueError: `smoothing` is out of its range.
        TypeError: `smoothing` is no number.
    """

    def __init__(self, smoothing: float = 0.9) -> None:
        self._smoothing = as_number("smoothing", smoothing)
        if not 0 <= self._smoothing < 1:
            raise ValueError(f"smoothing is {self._smoothing!r}: 0 to less than 1 is needed")
        self._sums = {"sqnorm": 0.0, "trace": 0.0, "weight": 0.0}

    def update(self, estimate: NoiseScale) -> NoiseScale:
        """Add the estimate of a step; return the average.

        Raises:
            ValueError: the estimate is not finite; the average is unchanged.
        """
        if not (math.isfinite(estimate.sqnorm) and math.isfinite(estimate.trace)):
            raise ValueError(f"estimate is {estimate!r}: finite numbers are needed; skip the step")
        new = {"sqnorm": estimate.sqnorm, "trace": estimate.trace, "weight": 1.0}
        for name, value in new.items():
            old = self._sums[name]
            self._sums[name] = self._smoothing * old + (1 - self._smoothing) * value
        return self.average

    @property
    def average(self) -> NoiseScale:
        """Return the average so far; zeros before the first step."""
        weight = self._sums["weight"] or 1.0
        return NoiseScale(self._sums["sqnorm"] / weight, self._sums["trace"] / weight)

    def state_dict(self) -> dict[str, float]:
        """Return the sums, plain numbers, for a checkpoint."""
        return dict(self._sums)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: a number is missing or not finite; the average is unchanged.
            TypeError: a value is no number; the average is unchanged.
        """
        if missing := self._sums.keys() - state.keys():
            raise ValueError(
                f"state has no {', '.join(sorted(missing))}: pass what state_dict() returned"
            )
        sums = {name: as_number(name, state[name]) for name in self._sums}
        if not all(map(math.isfinite, sums.values())):
            raise ValueError(f"state is {sums!r}: finite numbers are needed")
        self._sums = sums
