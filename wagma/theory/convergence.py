"""Bound on the error of SGD with a fixed learning rate on a strongly convex objective. Pure.

K-sync, K-async and fastest-k SGD share the bound: an error floor, to which the error falls
exponentially (Bottou et al., 2018, Theorem 4.6).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from wagma.theory.checks import Floats, check_time


@dataclass(frozen=True)
class Descent:
    """SGD with a fixed learning rate on a c-strongly convex, L-smooth objective F.

    Attributes:
        eta: learning rate, > 0.
        L: F's gradient is Lipschitz continuous with this constant, > 0.
        sigma2: bound on the variance of a sample's gradient, >= 0.
        c: F is strongly convex with this parameter, > 0 and at most L.
        gap: F(w_0) - F* at the beginning, >= 0.
        share: gamma', the share of the descent that staleness leaves, > 0; 1 for fresh gradients.

    Raises:
        ValueError: a value is out of its range, or eta c gamma' is not below 1.
        TypeError: a value is no number.
    """

    eta: float
    L: float
    sigma2: float
    c: float
    gap: float
    share: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            number = check_time(name, value, positive=name not in ("sigma2", "gap"))
            object.__setattr__(self, name, number)
        if self.c > self.L:
            raise ValueError(
                f"c is {self.c!r}: at most L = {self.L!r} is possible for an L-smooth objective"
            )
        if not self.eta * self.c * self.share < 1:
            stale = self.share != 1
            needed = f"eta c gamma' < 1 with gamma' = {self.share:g}" if stale else "eta c < 1"
            raise ValueError(
                f"eta is {self.eta!r}: the bound needs {needed}, "
                f"less than {1 / (self.c * self.share):g}"
            )

    def floor(self, batch: float) -> float:
        """Return the error floor, eta L sigma^2 / (2 c gamma' batch), of such mini-batches."""
        return self.eta * self.L * self.sigma2 / (2 * self.c * self.share * batch)

    def error(self, iterations: Floats, batch: float) -> Floats:
        """Return floor + (1 - eta c gamma')^iterations (gap - floor)."""
        floor = self.floor(batch)
        left: Floats = (1 - self.eta * self.c * self.share) ** iterations
        return floor + left * (self.gap - floor)
