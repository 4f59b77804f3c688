"""Error of SGD with a fixed learning rate on a strongly convex objective, as papers bound it. Pure.

K-sync, K-async and fastest-k SGD share the bound: an error floor, to which the error falls
exponentially (Bottou et al., 2018, Theorem 4.6).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from wagma.theory.checks import check_numbers, check_time

__all__ = ["Descent", "check_passed", "check_share", "shaped"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """SGD with a fixed learning rate on a c-strongly convex, L-smooth objective F.

    Attributes:
        eta: learning rate, > 0.
        L: F's gradient is Lipschitz continuous with this constant, > 0.
        sigma2: bound on the variance of a sample's gradient, >= 0.
        c: F is strongly convex with this parameter, > 0 and at most L.
        gap: F(w_0) - F* at the beginning, >= 0.

    Raises:
        ValueError: a value is out of its range, or eta c is not below 1.
        TypeError: a value is no number.
    """

    eta: float
    L: float
    sigma2: float
    c: float
    gap: float

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            number = check_time(name, value, positive=name not in ("sigma2", "gap"))
            object.__setattr__(self, name, number)
        if self.c > self.L:
            raise ValueError(
                f"c is {self.c!r}: at most L = {self.L!r} is possible for an L-smooth objective"
            )
        if not self.eta * self.c < 1:
            raise ValueError(
                f"eta is {self.eta!r}: the bound needs eta c < 1, less than {1 / self.c:g}"
            )

    def floor(self, batch: float) -> float:
        """Return the error floor, eta L sigma^2 / (2 c batch), of gradients of `batch` samples."""
        return self.eta * self.L * self.sigma2 / (2 * self.c * batch)

    def decayed(self, iterations: Floats, floor: float, gap: float, share: float = 1.0) -> Floats:
        """Return floor + (1 - eta c share)^iterations (gap - floor)."""
        result: Floats = floor + (1 - self.eta * self.c * share) ** iterations * (gap - floor)
        return result


def check_passed(name: str, values: npt.ArrayLike) -> Floats:
    """Return times or iterations, each finite and at least 0, as float64; raise ValueError."""
    passed = check_numbers(name, values)
    if (wrong := passed[~(np.isfinite(passed) & (passed >= 0))]).size:
        raise ValueError(f"{name} has {float(wrong[0])!r}: finite numbers, at least 0, are needed")
    return passed


def check_share(name: str, value: float) -> float:
    """Return a number from 0 to 1 as a float; raise ValueError."""
    if (share := check_time(name, value)) > 1:
        raise ValueError(f"{name} is {share!r}: at most 1 is possible")
    return share


def shaped(values: Floats) -> float | Floats:
    """Return a float for a single number, and an array as it is."""
    return values if values.ndim else float(values)
