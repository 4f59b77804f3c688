"""Choose k from the signs of inner products of successive gradients: Algorithm 1. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, SupportsIndex, get_args

from wagma.inject.checks import as_number, check_count
from wagma.theory.checks import check_time

Schedule = Literal["additive", "double"]


class AdaptiveK:
    """Raise k when SGD oscillates: Algorithm 1 of Kas Hanna et al. (2022).

    A negative inner product of two successive gradient estimates counts +1, another one -1. When
    the count exceeds `thresh`, and more than `burnin` iterations have passed, k grows if it can,
    and both counters start anew.

    This deviates from the print in two details. Its iteration j compares with a gradient that does
    not exist yet; here the last two existing gradients are compared, and the first iteration
    compares none. The number of iterations starts at 1, and after a switch at 0, which the same
    iteration increments to 1.

    Not thread-safe.

    Args:
        k0: k of the first iteration, 1 to n.
        n: number of workers, >= 1.
        step: increment of k with "additive", >= 1; "double" does not use it.
        thresh: number that the count has to exceed, >= 0.
        burnin: number that the iterations have to exceed, >= 0.
        k_max: the largest k, k0 to n; None: n.
        schedule: "additive" adds `step` where k + step <= min(n, k_max) (V-A); "double" doubles k
            where 2 k <= min(n, k_max) (V-B).

    Raises:
        ValueError: an argument has another value.
        TypeError: an argument is no number.
    """

    def __init__(
        self,
        k0: SupportsIndex,
        n: SupportsIndex,
        step: SupportsIndex,
        thresh: float,
        burnin: float,
        k_max: SupportsIndex | None = None,
        schedule: Schedule = "additive",
    ) -> None:
        workers = check_count("n", n, 1)
        self._k = self._k0 = check_count("k0", k0, 1, workers)
        self._step = check_count("step", step, 1)
        self._thresh = check_time("thresh", thresh)
        self._burnin = check_time("burnin", burnin)
        self._k_max = workers if k_max is None else check_count("k_max", k_max, self._k, workers)
        if schedule not in get_args(Schedule):
            raise ValueError(
                f"schedule is {schedule!r}: one of {', '.join(get_args(Schedule))} is needed"
            )
        self._schedule = schedule
        self._count_negative, self._count_iter = 0, 1

    @property
    def k(self) -> int:
        """Return the k of the next iteration."""
        return self._k

    def update(self, inner_product: float | None) -> int:
        """End an iteration; return the k of the next one.

        Args:
            inner_product: of the last two gradient estimates; None where there is only one, which
                counts neither way.

        Raises:
            ValueError: it is NaN, which has no sign; nothing has changed then.
            TypeError: it is no number.
        """
        if inner_product is not None:
            product = as_number("inner_product", inner_product)
            if math.isnan(product):
                raise ValueError(
                    "inner_product is nan: a gradient is not finite; leave the iteration out, or "
                    "take a smaller learning rate"
                )
            self._count_negative += 1 if product < 0 else -1
        larger = self._k + self._step if self._schedule == "additive" else 2 * self._k
        if (
            self._count_negative > self._thresh
            and self._count_iter > self._burnin
            and larger <= self._k_max
        ):
            self._k = larger
            self._count_negative = self._count_iter = 0
        self._count_iter += 1
        return self._k

    def state(self) -> dict[str, int]:
        """Return k and both counters, for a checkpoint."""
        return {
            "k": self._k,
            "count_negative": self._count_negative,
            "count_iter": self._count_iter,
        }

    def load_state(self, state: Mapping[str, SupportsIndex]) -> None:
        """Restore what `state` returned.

        Raises:
            ValueError: a number is missing, or k is not from k0 to k_max; nothing has changed then.
            TypeError: a value is no integer; nothing has changed then.
        """
        if missing := self.state().keys() - state.keys():
            raise ValueError(
                f"state has no {', '.join(sorted(missing))}: pass what AdaptiveK.state() returned"
            )
        k = check_count("k", state["k"], self._k0, self._k_max)
        iterations = check_count("count_iter", state["count_iter"], 1)
        negative = check_count("count_negative", state["count_negative"], -iterations, iterations)
        self._k, self._count_negative, self._count_iter = k, negative, iterations
