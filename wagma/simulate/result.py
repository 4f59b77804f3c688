"""What a simulation found. Pure."""

from dataclasses import dataclass

from wagma.theory.cannikin import goodput
from wagma.theory.checks import Floats


@dataclass(frozen=True, eq=False)
class Simulated:
    """Result of `simulate`.

    Attributes:
        seconds: virtual time until the last rank has made its last version.
        versions_per_second: versions made, by `seconds`.
        throughput: gradients of whole local batches that count, of all ranks together, per second:
            the samples per second by the samples of one rank's batch. A gradient that was dropped
            does not count, a batch of which half was dropped counts half.
        ideal: the same if no rank ever waited: the sum over the ranks of 1 / mean compute time.
        late: share of calls that came after their version had begun without them, 0 to 1.
        waited: seconds that each rank waited for others, float64: (P,).
        staleness: mean age, in versions, of what was averaged; 0: all was fresh.
        contributors: mean number of gradients or models in an average.
        dropped: share of the gradients, or of their micro-batches, that no average gets, 0 to 1.
        consensus: root mean square distance of a rank's model from the mean model, over the
            versions of a quadratic objective, in steps of the noise of one update; 0: all models
            are equal; None: not simulated.
        note: what `staleness`, `dropped` and `consensus` say about convergence, in words.
    """

    seconds: float
    versions_per_second: float
    throughput: float
    ideal: float
    late: float
    waited: Floats
    staleness: float
    contributors: float
    dropped: float
    consensus: float | None
    note: str

    @property
    def computed(self) -> float:
        """Gradients per second as `throughput` counts them, dropped ones included."""
        return self.throughput / (1 - self.dropped)

    @property
    def efficiency(self) -> float:
        """Share of the ideal throughput, 0 to 1."""
        return self.throughput / self.ideal

    def goodput(self, noise_scale: float) -> float:
        """Return `throughput` by what a sample of such updates is worth, by the noise scale.

        An update has the gradients of `throughput` / `versions_per_second` local batches; relative
        to an update of one local batch, see `wagma.theory.cannikin.goodput`. Neither stale
        gradients nor models that are apart count.

        Args:
            noise_scale: of the gradients, in local batches, >= 0; math.inf: `throughput`.

        Raises:
            ValueError: `noise_scale` is out of its range.
            TypeError: it is no number.
        """
        batches = max(self.throughput / self.versions_per_second, 1e-300)
        return goodput(batches, 1 / self.versions_per_second, noise_scale, 1.0)
