"""A cluster's model, learned while it trains: Secs. 4.2 and 4.5. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import as_number, check_count
from wagma.theory.cannikin.arguments import check_vector
from wagma.theory.cannikin.cluster import ClusterModel, NodeModel
from wagma.theory.cannikin.fits import Line, NodeFit
from wagma.theory.checks import Floats

# Variance that a measured gamma has until several were measured.
_GAMMA_VARIANCE = 0.05**2


def combine_gamma(gammas: npt.ArrayLike, variances: npt.ArrayLike) -> float:
    """Return the mean of gammas, weighted by the inverse of their variances: (12).

    Where variances are 0 only those count, equally.

    Args:
        gammas: of each node, 0 to 1: (n,).
        variances: of each node's measurements, >= 0: (n,).

    Raises:
        ValueError: a shape or a number is wrong.
        TypeError: something is no number.
    """
    values = check_vector("gammas", gammas, most=1)
    spreads = check_vector("variances", variances, len(values))
    least = spreads.min()
    # Relative to the least one: an inverse could overflow.
    weights = (spreads == 0).astype(float) if least == 0 else least / spreads
    return float((weights * values).sum() / weights.sum())


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """Standard errors of the numbers of `NodeModel`, in the same units: (n,) each."""

    q: Floats
    s: Floats
    k: Floats
    m: Floats


class PerformanceLearner:
    """Learn the times of all nodes from what they measure, and notice nodes that change.

    ``observe`` takes what all nodes measured while they had the same batches: means over an epoch,
    or over some steps. Two different batches of each node give a model; the first one may be an
    even split, the second one `distinct_batches`. Later observations better it: see `NodeFit`.

    Speeds may change. A node that gets slower or faster by more than errors explain is known so
    after one observation, also if its batch stays the same; `changed` names it. Smaller changes
    come in by and by.

    The model depends on the observations alone, and not on the CPU: ranks that share them get equal
    models. An object is used by one thread at a time.

    Args:
        nodes: n, >= 1.
        forgetting: weight of an observation relative to the one after it, more than 0 to 1.
        max_batches: `NodeModel.max_batch` of each node: n of them. None: no limits.
        min_batches: `NodeModel.min_batch` of each node: n of them. None: 0. A node with a batch of
            0 measures nothing, so that it would never be noticed to be faster: 1 avoids that.

    Raises:
        ValueError: a value is out of its range.
        TypeError: a value is of a wrong type.
    """

    def __init__(
        self,
        nodes: SupportsIndex,
        *,
        forgetting: float = 0.8,
        max_batches: Sequence[int | None] | None = None,
        min_batches: Sequence[int] | None = None,
    ) -> None:
        count = check_count("nodes", nodes, 1)
        self._forgetting = as_number("forgetting", forgetting)
        if not 0 < self._forgetting <= 1:
            raise ValueError(
                f"forgetting is {self._forgetting!r}: more than 0, at most 1 is needed"
            )
        self._most = [None] * count if max_batches is None else list(max_batches)
        self._least = [0] * count if min_batches is None else list(min_batches)
        for name, limits in (("max_batches", self._most), ("min_batches", self._least)):
            if len(limits) != count:
                raise ValueError(f"{name} has {len(limits)} limits: one for each of {count} nodes")
        for most, least in zip(self._most, self._least, strict=True):
            NodeModel(0, 0, 1, 0, most, least)  # refuses wrong limits
        self._fits = [NodeFit(self._forgetting) for _ in range(count)]
        self._gammas = [_Mean() for _ in range(count)]
        self._overlap, self._last = _Mean(), _Mean()

    def observe(
        self,
        batches: npt.ArrayLike,
        a: npt.ArrayLike,
        P: npt.ArrayLike,
        *,
        gammas: npt.ArrayLike | None = None,
        overlap_times: npt.ArrayLike | None = None,
        last_bucket_times: npt.ArrayLike | None = None,
    ) -> None:
        """Take the measurements of all nodes in; where one is wrong nothing has changed.

        Args:
            batches: b_i, samples, >= 0. Of a node with 0 only communication counts: (n,).
            a: seconds before backward, >= 0: (n,).
            P: seconds of backward, > 0 where the batch is: (n,).
            gammas: share of backward until the first bucket was ready, 0 to 1: (n,). None: not
                measured.
            overlap_times: T_o as each node sees it, >= 0: (n,). The least counts: the others waited
                for other nodes. None: not measured.
            last_bucket_times: T_u, in the same way.

        Raises:
            ValueError: a shape or a number is wrong.
            TypeError: something is no number.
        """
        count = len(self._fits)
        sizes = check_vector("batches", batches, count)
        before, backward = check_vector("a", a, count), check_vector("P", P, count)
        if (none := (sizes > 0) & (backward == 0)).any():
            raise ValueError(
                f"P[{int(none.argmax())}] is 0.0 with a batch above 0: more than 0 is needed; "
                "measure with a finer clock"
            )
        ratios = None if gammas is None else check_vector("gammas", gammas, count, most=1)
        least = [
            None if times is None else float(check_vector(name, times, count).min())
            for name, times in (
                ("overlap_times", overlap_times),
                ("last_bucket_times", last_bucket_times),
            )
        ]
        for node in range(count):
            self._fits[node].changed = False
            if sizes[node] > 0:
                self._fits[node].observe(
                    float(sizes[node]), float(before[node]), float(backward[node])
                )
                if ratios is not None:
                    self._gammas[node].add(float(ratios[node]), self._forgetting)
        for mean, value in zip((self._overlap, self._last), least, strict=True):
            if value is not None:
                mean.add(value, self._forgetting)

    @property
    def unknown(self) -> tuple[int, ...]:
        """Return the nodes that have not been observed with two different batches yet."""
        return tuple(node for node, fit in enumerate(self._fits) if not fit.is_known)

    @property
    def changed(self) -> tuple[int, ...]:
        """Return the nodes that got slower or faster according to the last observation."""
        return tuple(node for node, fit in enumerate(self._fits) if fit.changed)

    def sample_times(self) -> Floats:
        """Return each node's seconds per sample, for `distinct_batches` or `initial_batches`: (n,).

        Raises:
            ValueError: a node has not been observed yet.
        """
        times = [fit.sample_time() for fit in self._fits]
        if None in times:
            raise ValueError(
                f"node {times.index(None)} has not been observed yet: give it a batch above 0"
            )
        return np.array(times, np.float64)

    def cluster(self) -> ClusterModel:
        """Return the model.

        Where communication was never measured it takes no time, and without gammas nothing
        overlaps: gamma is 1.

        Raises:
            ValueError: some nodes have not been observed with two different batches yet.
        """
        nodes = tuple(
            NodeModel(a.slope, a.intercept, P.slope, P.intercept, most, least)
            for (a, P), most, least in zip(self._lines(), self._most, self._least, strict=True)
        )
        measured = [gamma for gamma in self._gammas if gamma.weight]
        gamma = 1.0
        if measured:
            means, variances = [g.mean for g in measured], [g.variance() for g in measured]
            gamma = min(combine_gamma(np.clip(means, 0, 1), variances), 1.0)
        return ClusterModel(nodes, gamma, self._overlap.mean, self._last.mean)

    def errors(self) -> StandardErrors:
        """Return the standard errors of the model of each node.

        Until a node's observations have shown how large errors are, 2 % of the time are presumed.

        Raises:
            ValueError: some nodes have not been observed with two different batches yet.
        """
        rows = [
            (a.slope_error, a.intercept_error, P.slope_error, P.intercept_error)
            for a, P in self._lines()
        ]
        return StandardErrors(*np.array(rows, np.float64).T.copy())

    def state_dict(self) -> dict[str, Any]:
        """Return all that was learned, as plain lists and numbers, for a checkpoint."""
        return {
            "nodes": [fit.state() for fit in self._fits],
            "gammas": [gamma.state() for gamma in self._gammas],
            "overlap_time": self._overlap.state(),
            "last_bucket_time": self._last.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; limits and forgetting stay this object's.

        Raises:
            ValueError: it is of another number of nodes, or something is missing.
        """
        if missing := self.state_dict().keys() - state.keys():
            raise ValueError(
                f"state has no {', '.join(sorted(missing))}: pass what state_dict() returned"
            )
        if len(state["nodes"]) != len(self._fits):
            raise ValueError(
                f"state is of {len(state['nodes'])} nodes, and this learner has "
                f"{len(self._fits)}: what was learned of nodes holds for these; start anew"
            )
        for fit, saved in zip(self._fits, state["nodes"], strict=True):
            fit.load(saved)
        for gamma, saved in zip(self._gammas, state["gammas"], strict=True):
            gamma.load(saved)
        self._overlap.load(state["overlap_time"])
        self._last.load(state["last_bucket_time"])

    def _lines(self) -> list[tuple[Line, Line]]:
        if unknown := self.unknown:
            raise ValueError(
                f"nodes {', '.join(map(str, unknown))} have not been observed with two different "
                "batches yet: give them another batch, above 0, and observe it"
            )
        return [lines for fit in self._fits if (lines := fit.lines())]


@dataclass
class _Mean:
    """A mean and a sum of squared deviations of numbers, of which old ones weigh less."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float, forgetting: float) -> None:
        self.weight = self.weight * forgetting + 1
        apart = value - self.mean
        self.mean += apart / self.weight
        self.squares = self.squares * forgetting + apart * (value - self.mean)

    def variance(self) -> float:
        """Return the variance of a gamma, with one more that has the presumed variance."""
        return (self.squares + _GAMMA_VARIANCE) / self.weight

    def state(self) -> list[float]:
        return [self.weight, self.mean, self.squares]

    def load(self, state: Sequence[float]) -> None:
        self.weight, self.mean, self.squares = map(float, state)
