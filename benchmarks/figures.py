"""Statistics of what was measured; docs/benchmarks.md defines every figure. Pure.

Times are in us, of float64; samples have the shape [iterations, ranks].
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .samples import Point, Series, Times
from .settings import Settings, in_groups, members

Us = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """Statistics of a figure over the iterations, in us; percentiles by linear interpolation."""

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Osu:
    """The latency of OSU Micro-Benchmarks: means over the iterations on each rank, in us."""

    mean: float  # of the ranks' means
    smallest: float  # of them
    largest: float  # of them


@dataclass(frozen=True)
class Figures:
    """A series in figures."""

    osu: Osu  # the latency as OSU computes it
    # latency from a rank's own arrival, of the rank with the largest in each iteration
    own: Distribution
    # the same from the arrival of the last rank; negative where all had left before
    from_last: Distribution
    own_by_rank: tuple[float, ...]  # median of each rank's latency, in us
    from_last_by_rank: tuple[float, ...]  # the same from the arrival of the last rank
    late_percent: float  # contributions that were not in the result of their call
    late_percent_by_rank: tuple[float, ...]  # of each rank
    # by how much the ranks' latencies differ: largest less smallest, in percent of their mean; the
    # median over the iterations
    skew_percent: float
    arrivals: float  # from the first to the last arrival; median over the iterations, in us
    exits: float  # from the first to the last return; the same


def figures(series: Series) -> Figures:
    """Return every figure of one series, which has at least one iteration and one rank."""
    own, from_last = _own(series), _from_last(series)
    means = own.mean(axis=1)
    spread = np.ptp(own, axis=1)
    skews = np.divide(100 * spread, means, out=np.zeros_like(means), where=means > 0)
    return Figures(
        osu=osu(series),
        own=_distribution(own.max(axis=1)),
        from_last=_distribution(from_last.max(axis=1)),
        own_by_rank=_floats(np.median(own, axis=0)),
        from_last_by_rank=_floats(np.median(from_last, axis=0)),
        late_percent=float(100 * series.late.mean()),
        late_percent_by_rank=_floats(100 * series.late.mean(axis=0)),
        skew_percent=float(np.median(skews)),
        arrivals=_us(np.median(np.ptp(series.began, axis=1))),
        exits=_us(np.median(np.ptp(series.ended, axis=1))),
    )


def headline(series: Series) -> float:
    """Return the figure of which ratios and bandwidths are made: `Figures.own.p50`."""
    return float(np.median(_own(series).max(axis=1)))


def percentile(series: Series, percent: float, *, from_last: bool = False) -> float:
    """Return a percentile over the iterations, of each iteration's largest latency, interpolated.

    Args:
        series: of which.
        percent: 0 to 100.
        from_last: from the arrival of the last rank, and not from a rank's own.
    """
    latencies = _from_last(series) if from_last else _own(series)
    return float(np.percentile(latencies.max(axis=1), percent))


def reducing(settings: Settings, series: Series) -> int:
    """Return how many ranks' arrays are added up in each result of a series."""
    ranks = series.began.shape[1]
    of_group = series.library == "wagma" or OF_GROUP in series.name
    return members(settings, ranks) if of_group else ranks


def _us(ns: float) -> float:
    return float(ns) / 1e3


def _floats(values: Us) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _own(series: Series) -> Us:
    own: Us = (series.ended - series.began) / 1e3
    return own


def _from_last(series: Series) -> Us:
    from_last: Us = (series.ended - series.began.max(axis=1, keepdims=True)) / 1e3
    return from_last


def _distribution(values: Us) -> Distribution:
    p10, p50, p90, p99 = np.percentile(values, [10, 50, 90, 99])
    return Distribution(float(values.mean()), float(p10), float(p50), float(p90), float(p99))


# ---- OSU's ---------------------------------------------------------------------------------------


def osu(series: Series) -> Osu:
    """Return the latency of OSU Micro-Benchmarks."""
    return _osu(series.ended - series.began)


def _osu(ns: Times) -> Osu:
    by_rank = ns.mean(axis=0) / 1e3
    return Osu(float(by_rank.mean()), float(by_rank.min()), float(by_rank.max()))


def osu_percentile(series: Series, percent: float) -> float:
    """Return OSU's tail latency, in us: a percentile of latencies averaged over the ranks.

    The result is one of these latencies: there is no interpolation.
    """
    return _of_rank(_own(series).mean(axis=1), percent)


def _of_rank(values: Us, percent: float) -> float:
    place = int(len(values) * percent / 100)
    return float(np.sort(values)[max(place - 1, 0)])


@dataclass(frozen=True)
class Nonblocking:
    """What OSU's non-blocking benchmarks print: means over iterations and ranks, in us."""

    overall: float  # from posting to the end of waiting, computing included
    compute: float  # computing alone
    posting: float  # the call that posts
    testing: float  # calls that test while computing
    waiting: float  # the call that waits
    pure: Osu  # latency of calls without computing
    # the part of `pure` that computing hid: max(0, 100 - 100 (overall - compute) / pure)
    overlap_percent: float


def nonblocking(series: Series) -> Nonblocking:
    """OSU's figures of a series that has posting, waiting, computing and pure."""
    overall = _mean(series.ended - series.began)
    compute, testing = _mean(series.computing), _mean(series.testing)
    latency = Osu(0.0, 0.0, 0.0) if series.pure is None else _osu(series.pure)
    exposed = 100 * (overall - compute) / latency.mean if latency.mean > 0 else 100.0
    return Nonblocking(
        overall=overall,
        compute=compute,
        posting=_mean(series.posting),
        testing=testing,
        waiting=_mean(series.waiting) - testing,
        pure=latency,
        overlap_percent=max(0.0, 100 - exposed),
    )


def _mean(ns: Times | None) -> float:
    return 0.0 if ns is None else float(ns.mean()) / 1e3


def punctual(series: Series, percent: float) -> float:
    """Return the time in the calls, without computing, of ranks not delayed on purpose.

    The result is a percentile over the iterations, in us, of each iteration's largest time. Without
    `Series.delayed` no rank is delayed.
    """
    times = _in_calls(series)
    if series.delayed is not None:
        times = np.where(series.delayed, np.iinfo(np.int64).min, times)
    return float(np.percentile(times.max(axis=1) / 1e3, percent))


def delayed(series: Series, percent: float) -> float | None:
    """Return the same figure for ranks delayed on purpose; None: no rank is.

    Work that the punctual ranks are spared because the last one does it is found here.
    """
    if series.delayed is None or not series.delayed.any():
        return None
    return float(np.percentile(_in_calls(series)[series.delayed] / 1e3, percent))


def _in_calls(series: Series) -> Times:
    """Return the times in the calls, ns, without computing."""
    times = series.ended - series.began
    return times if series.computing is None else times - series.computing


# ---- bandwidth -----------------------------------------------------------------------------------


def algbw(size: int, us: float) -> float:
    """nccl-tests' algorithm bandwidth: GB/s of the array, 1e9 bytes each."""
    return size / us / 1e3 if us > 0 else 0.0


def busbw(size: int, us: float, ranks: int) -> float:
    """nccl-tests' bus bandwidth, in GB/s, of an allreduce of `ranks` ranks, those of a group."""
    return algbw(size, us) * 2 * (ranks - 1) / ranks


# ---- baselines -----------------------------------------------------------------------------------

OF_GROUP = " of "  # in the name of a baseline that adds up the arrays of each group

OF_GROUPS = "mpi-groups"  # part of the baseline "mpi", where wagma adds up the arrays of groups

# Name on the command line, and OF_GROUPS -> whether a series is of it.
BASELINES: dict[str, Callable[[Series], bool]] = {
    OF_GROUPS: lambda series: series.name.startswith(f"MPI_Allreduce{OF_GROUP}"),
    "mpi": lambda series: series.name.startswith("MPI_Allreduce ") and OF_GROUP not in series.name,
    "mpi-nonblocking": lambda series: series.name.startswith("MPI_Iallreduce"),
    "gloo": lambda series: series.library == "gloo",
    "nccl": lambda series: series.library == "nccl",
    "copy": lambda series: series.library == "copy",
}


def wagma(point: Point) -> Series:
    """Return the series of wagma, with which the others are compared."""
    return point.series[0]


def baseline(
    point: Point, name: str, figure: Callable[[Series], float] = headline
) -> Series | None:
    """Return the series of a baseline whose figure is smallest; None: it was not measured."""
    found = [series for series in point.series[1:] if BASELINES[name](series)]
    if name == OF_GROUPS and not found:
        return baseline(point, "mpi", figure)  # the group is everybody
    return min(found, key=figure, default=None)


def ratio(
    series: Series, other: Series, figure: Callable[[Series], float] = headline
) -> float | None:
    """Return how many times as long `other` takes as `series`.

    None: one was called from C and the other from Python, whose own time would be compared, too.
    """
    if series.loop != other.loop:
        return None
    own = figure(series)
    return figure(other) / own if own > 0 else 0.0


_LABELS = {
    "mpi": "MPI_Allreduce",
    "mpi-nonblocking": "MPI_Iallreduce",
    "gloo": "gloo",
    "nccl": "NCCL",
    "copy": "a copy",
}


def labels(settings: Settings) -> dict[str, str]:
    """Return the name of each baseline compared, by its key for `figures.baseline`; in order.

    Sums of groups are compared with MPI's sums of groups first; other baselines add up all ranks.
    """
    if not in_groups(settings):
        return {name: _LABELS[name] for name in settings.baselines}
    found = {}
    if "mpi" in settings.baselines:
        found[OF_GROUPS] = f"{_LABELS['mpi']} of groups"
    for name in settings.baselines:
        found[name] = _LABELS[name] if name == "copy" else f"{_LABELS[name]} of all"
    return found
