"""How long a version stays open once its quorum is there; the rule is csrc/engine/grace.h's. Pure.

"auto": min(80% quantile of the last 32 arrival spreads, 10% of the median of the last 32 compute
times), at least 50 us; 200 us until 4 spreads are known. Of these each rank has its own.
"""

import numpy as np
import numpy.typing as npt

from wagma.theory.checks import Floats

_SAMPLES, _START_SPREADS = 32, 4
_FLOOR_S, _START_S = 50e-6, 200e-6

Ranks = npt.NDArray[np.intp]


class _Samples:
    """The last values of each rank."""

    def __init__(self, ranks: int) -> None:
        self._values = np.full((ranks, _SAMPLES), np.inf)
        self.counts = np.zeros(ranks, np.intp)

    def add(self, ranks: Ranks, values: Floats) -> None:
        self._values[ranks, self.counts[ranks] % _SAMPLES] = values
        self.counts[ranks] += 1

    def quantile(self, ranks: Ranks, share: float) -> Floats:
        """Return the smallest number that this share of a rank's values does not exceed."""
        known = np.minimum(self.counts[ranks], _SAMPLES)
        place = np.maximum(np.ceil(share * known).astype(np.intp) - 1, 0)
        found: Floats = np.sort(self._values[ranks], axis=1)[np.arange(len(ranks)), place]
        return found


class Grace:
    """The grace of each rank's handle.

    Args:
        rule: seconds, or "auto".
        ranks: P.
    """

    def __init__(self, rule: float | str, ranks: int) -> None:
        self.fixed = None if isinstance(rule, str) else rule
        self._spreads, self._computes = _Samples(ranks), _Samples(ranks)

    def of(self, ranks: Ranks) -> Floats:
        """Return the seconds for versions that these ranks start."""
        if self.fixed is not None:
            return np.full(len(ranks), self.fixed)
        most = self._computes.quantile(ranks, 0.5) / 10
        grace = np.maximum(np.minimum(self._spreads.quantile(ranks, 0.8), most), _FLOOR_S)
        return np.where(self._spreads.counts[ranks] < _START_SPREADS, _START_S, grace)

    def computed(self, ranks: Ranks, seconds: Floats) -> None:
        """Note compute times."""
        if self.fixed is None:
            self._computes.add(ranks, seconds)

    def arrived(self, ranks: Ranks, spreads: Floats) -> None:
        """Note the spreads of versions that these ranks took part in."""
        if self.fixed is None:
            self._spreads.add(ranks, spreads)
