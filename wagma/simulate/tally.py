"""What the engines count while they simulate. Pure."""

from dataclasses import dataclass, field

import numpy as np

from wagma.theory.checks import Floats


@dataclass
class Tally:
    """Sums over the calls and averages of a simulation.

    Attributes:
        ranks: P.
        seconds: time until the last rank has made its last version.
        gradients: which count, in local batches.
        computed: gradients that were computed.
        calls: of the collective; `late`: those that came too late.
        ages: sum of the ages, in versions, of `averaged` contributions.
        averages: results, for which `averaged` counts their contributions.
        waited: seconds that each rank waited, (P,).
        versions: which were made; None: those of the workload.
        consensus: see `Simulated`.
    """

    ranks: int
    seconds: float = 0.0
    gradients: float = 0.0
    computed: float = 0.0
    calls: int = 0
    late: int = 0
    ages: float = 0.0
    averaged: float = 0.0
    averages: int = 0
    consensus: float | None = None
    waited: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.waited = np.zeros(self.ranks)

    def averaged_all(self, times: int = 1) -> None:
        """Count averages of all ranks, all of them fresh."""
        self.averaged += self.ranks * times
        self.averages += times
