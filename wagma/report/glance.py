"""The first lines of a report: what its figures say, in a few sentences. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from wagma.report.records import Benchmark, Found, Point, Training
from wagma.report.sections.delays import by_delay
from wagma.report.sections.latency import TITLES, by_size
from wagma.report.sections.throughput import BASELINE, mean_throughput
from wagma.report.sections.words import percent, setup, times, us
from wagma.report.style import without_form
from wagma.units import size_text

MOST = 4  # a row of the page
OURS = "wagma"  # among the algorithms of a training


@dataclass(frozen=True)
class Fact:
    """A figure, what it is of, and the anchor of its section."""

    figure: str
    words: str
    section: str


def glance(found: Found) -> list[Fact]:
    """Return a few facts: of every kind of measurement the first ones."""
    kinds = (
        [fact for each in found.trainings for fact in _training(each)],
        [fact for size, each in by_delay(found) for fact in _delay(size, each)],
        [fact for each in by_size(found) for fact in _ratio(each)],
    )
    by_place = [fact for place in zip_longest(*kinds) for fact in place if fact is not None]
    chosen = by_place[:MOST]
    return [fact for facts in kinds for fact in facts if fact in chosen]


def _training(training: Training) -> Iterator[Fact]:
    if {BASELINE, OURS} <= set(training.algorithms):
        ours, theirs = (mean_throughput(training, name) for name in (OURS, BASELINE))
        names = (training.label(name) for name in (BASELINE, OURS))
        if theirs > 0:
            yield Fact(
                times(ours / theirs),
                "the throughput of {} with {}: ".format(*names) + training.what,
                "throughput",
            )


def _delay(size: int, benchmark: Benchmark) -> Iterator[Fact]:
    """Yield the facts at the longest delay."""
    points = [point for point in benchmark.points if point.size == size and point.delay_us]
    if points:
        point = max(points, key=lambda each: each.delay_us or 0.0)
        fastest = _fastest(point)
        if fastest is not None:
            other, ratio = fastest
            ours = point.wagma
            own = ours.own.p50
            yield Fact(
                times(ratio),
                f"as long as wagma does {other} block a rank while another comes "
                f"{us(point.delay_us)} late: {us(ratio * own)}, wagma {us(own)} with "
                f"{percent(ours.late_percent)} late contributions ({size_text(size)}, "
                f"{setup(benchmark)})",
                "delays",
            )


def _ratio(benchmark: Benchmark) -> Iterator[Fact]:
    """Yield the range, over the sizes, of the fastest other series' time relative to wagma's."""
    known = [(fastest, point.size) for point in benchmark.points if (fastest := _fastest(point))]
    if known:
        ratios = sorted(ratio for (_, ratio), _ in known)
        sizes = sorted(size for _, size in known)
        names = sorted({name for (name, _), _ in known})
        late = max(point.wagma.late_percent for point in benchmark.points)
        but = f", with up to {percent(late)} late contributions" if late else ""
        yield Fact(
            f"{times(ratios[0])} to {times(ratios[-1])}",
            f"the latency of the fastest of the others ({', '.join(names)}) divided by wagma's: "
            f"{TITLES[benchmark.kind].lower()}, {size_text(sizes[0])} to {size_text(sizes[-1])}, "
            f"{setup(benchmark)}{but}",
            "ratios",
        )


def _fastest(point: Point) -> tuple[str, float] | None:
    """Return the fastest of the other series, and its time relative to wagma's."""
    ratios = [
        (each.ratio, without_form(name))
        for name, each in list(point.series.items())[1:]
        if each.ratio is not None
    ]
    if not ratios:
        return None
    ratio, name = min(ratios)
    return name, ratio
