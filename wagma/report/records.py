"""What was found in files, in the form that sections are made of. Pure.

Paths are relative to the folder of the report, as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wagma.trace.files import Timeline
    from wagma.trace.summary import RankSummary


@dataclass(frozen=True)
class Source:
    """A file that was read."""

    path: str  # of the file
    kind: str  # what it is, in words
    # where and with what it was measured, as the file has it; empty: it has none
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None  # the command line that made it; None: it was not recorded


@dataclass(frozen=True)
class Skipped:
    """A file that was not used, and why."""

    path: str
    why: str


# ---- benchmarks ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distribution:
    """Times of the rank with the largest latency over the iterations, in us."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True)
class Measured:
    """A series at a point; fields, but `own`, are those of benchmark.schema.json."""

    name: str
    own: Distribution
    late_percent: float
    ratio: float | None
    overlap_percent: float | None
    paid_p50_us: float | None
    paid_p90_us: float | None
    delayed_p50_us: float | None
    wrong: int


@dataclass(frozen=True)
class Point:
    """Series that were measured beside each other, wagma's first."""

    size: int  # bytes of each array
    delay_us: float | None  # T of the pattern of arrivals; None: it has none
    series: Mapping[str, Measured]  # by name

    @property
    def wagma(self) -> Measured:
        """Return the first series."""
        return next(iter(self.series.values()))


@dataclass(frozen=True)
class Benchmark:
    """A report of ``python -m wagma bench --format json``; `kind` is one of its kinds."""

    path: str
    kind: str
    ranks: int
    transport: str
    settings: Mapping[str, Any]
    interrupted: bool
    points: Sequence[Point]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all series, in their order."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.series))


@dataclass(frozen=True)
class Simulation:
    """Rows of a simulation; `what`: the times that ranks compute, in words."""

    path: str  # of the file
    what: str
    rows: Sequence[Mapping[str, Any]]  # see `wagma.simulate.rows`


@dataclass(frozen=True)
class Divisions:
    """Trainings of ``python -m wagma bench heterogeneous``, which divide a batch in other ways."""

    path: str
    what: str  # the cluster, in words
    notes: Sequence[str]
    table: Sequence[Sequence[str]]  # its head first


@dataclass(frozen=True)
class Goals:
    """The rows of ``python -m wagma bench table --json``, as texts by column."""

    path: str
    rows: Sequence[Mapping[str, str]]


# ---- trainings -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """What is measured of the averaged model, over seconds from the start."""

    seconds: Sequence[float]
    accuracy: Sequence[float]


@dataclass(frozen=True)
class Run:
    """One training; fields are those of training.schema.json."""

    algorithm: str
    seed: int
    throughput: float
    ideal_throughput: float | None
    step_time_p50: float
    step_time_p90: float
    waited_seconds_per_rank: Sequence[float]
    late_share: float
    staleness_mean: float | None
    consensus_distance: float | None
    accuracy: float
    time_to_target: float | None
    curve: Curve | None  # has as many seconds as values; None: it has none of either
    staleness: Mapping[int, int]  # number of contributions by their age in versions
    # what stopping at a threshold did, as its schema says; empty: it does not stop
    dropping: Mapping[str, float | None]


@dataclass(frozen=True)
class Training:
    """Runs that compare with each other: same ranks, same task, same imbalance."""

    path: str  # of the file
    what: str  # ranks, task and imbalance in words
    target: float  # of the measure, whose time is measured
    labels: Mapping[str, str]  # what algorithms are called
    measure: str  # what the curves are of: "test accuracy", ...
    in_percent: bool  # it is a share, 0 to 1, and shown in percent
    interrupted: bool  # runs are missing
    runs: Sequence[Run]  # in the order of the file

    @property
    def algorithms(self) -> tuple[str, ...]:
        """In the order of the file."""
        return tuple(dict.fromkeys(run.algorithm for run in self.runs))

    def label(self, algorithm: str) -> str:
        """Return what it is called in plots and tables."""
        return self.labels.get(algorithm, algorithm)

    def measured(self, value: float) -> str:
        """Return a value of the measure as text."""
        return f"{value:.1%}" if self.in_percent else f"{value:.4g}"

    def of(self, algorithm: str) -> list[Run]:
        """Return the runs of an algorithm, one for each seed."""
        return [run for run in self.runs if run.algorithm == algorithm]


# ---- timelines -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """The timelines of one run; `name`: their folder, or the merged file."""

    name: str
    timelines: Sequence[Timeline]


@dataclass(frozen=True)
class Summaries:
    """The rows that ``python -m wagma trace summary --json`` printed."""

    path: str
    rows: Sequence[RankSummary]


@dataclass
class Found:
    """All that a folder has."""

    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    benchmarks: list[Benchmark] = field(default_factory=list)
    goals: list[Goals] = field(default_factory=list)
    simulations: list[Simulation] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    divisions: list[Divisions] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    summaries: list[Summaries] = field(default_factory=list)
