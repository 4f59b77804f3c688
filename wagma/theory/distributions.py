"""Distributions of compute times: frozen distributions of scipy.stats, checked. Pure."""

import math
from typing import Any, Protocol

import numpy as np


class Distribution(Protocol):
    """A frozen distribution of scipy.stats, continuous or discrete."""

    def cdf(self, x: Any) -> Any: ...  # noqa: D102 scipy's
    def isf(self, q: Any) -> Any: ...  # noqa: D102
    def mean(self) -> Any: ...  # noqa: D102
    def ppf(self, q: Any) -> Any: ...  # noqa: D102
    def rvs(self, *args: Any, **kwds: Any) -> Any: ...  # noqa: D102
    def sf(self, x: Any) -> Any: ...  # noqa: D102
    def std(self) -> Any: ...  # noqa: D102
    def support(self) -> tuple[Any, Any]: ...  # noqa: D102


_METHODS = ("cdf", "isf", "mean", "ppf", "rvs", "sf", "std", "support")


def check_distribution(distribution: Distribution) -> None:
    """Raise TypeError unless this is one frozen distribution of scipy.stats."""
    if not all(callable(getattr(distribution, name, None)) for name in _METHODS):
        raise TypeError(
            f"distribution is {distribution!r}: a frozen distribution of scipy.stats is needed, "
            "such as scipy.stats.expon(scale=0.2)"
        )
    if np.ndim(lowest := distribution.support()[0]) > 0:
        raise TypeError(
            f"distribution has parameters of the shape {np.shape(lowest)}: one distribution is "
            "needed; make one for each of the parameters"
        )


def check_times(distribution: Distribution, *, mean: bool = False) -> None:
    """Check that a distribution is one of times, >= 0.

    Args:
        distribution: of a computing time.
        mean: whether a mean that is finite and above 0 is needed as well.

    Raises:
        ValueError: it has negative values, or not the mean that is needed.
        TypeError: it is no distribution.
    """
    check_distribution(distribution)
    if not (lowest := float(distribution.support()[0])) >= 0:
        raise ValueError(
            f"distribution has values from {lowest!r}: times are at least 0; cut it off, for "
            "example with scipy.stats.truncnorm"
        )
    if mean and not 0 < (average := float(distribution.mean())) < math.inf:
        raise ValueError(
            f"distribution has the mean {average!r}: a finite mean above 0 is needed; cut its "
            "tail off, for example where a time limit would"
        )


def parameters(distribution: Distribution, family: Any) -> dict[str, float] | None:
    """Return the parameters of a distribution of this family of scipy.stats; None: of another one.

    They are loc, scale and the shapes, by scipy's names, whether given by position or by name.
    """
    if not isinstance(getattr(distribution, "dist", None), type(family)):
        return None
    names = [*(family.shapes or "").replace(",", " ").split(), "loc", "scale"]
    arguments, keywords = getattr(distribution, "args", ()), getattr(distribution, "kwds", {})
    given = dict(zip(names, arguments, strict=False)) | keywords
    return {"loc": 0.0, "scale": 1.0} | {name: float(value) for name, value in given.items()}
