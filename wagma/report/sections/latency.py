"""Latency against size, and how it compares with wagma's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from wagma.report.document import Cell, Part, Plot, Section, Table, table
from wagma.report.records import Benchmark, Found, Measured
from wagma.report.sections.axes import legend, line, log_time, palette, size_axis
from wagma.report.sections.words import NONE, TIMES, percent, remarks, setup, slug, spread_us, times
from wagma.report.style import FAINT, Look
from wagma.units import size_text

__all__ = ["by_size", "latency", "ratios"]

Looks = Mapping[str, Look]

TITLES = {
    "allreduce": "Allreduce",
    "group-allreduce": "Allreduce in groups",
    "bandwidth": "Allreduce of large arrays",
}


def by_size(found: Found) -> list[Benchmark]:
    """Those whose points differ in size."""
    return [each for each in found.benchmarks if each.kind in TITLES and each.points]


def latency(found: Found) -> Section | None:
    """Latency against size."""
    looked = palette(found)
    parts = [_latency(each, looked, index) for index, each in enumerate(by_size(found))]
    if not parts:
        return None
    text = (
        "Lines are medians over the iterations of the slowest rank's time in the call; bands, and "
        "the small figures, reach from the 10th to the 90th percentile.",
    )
    return Section("latency", "Latency against size", tuple(parts), text)


def _latency(benchmark: Benchmark, looked: Looks, index: int) -> Part:
    title = f"{TITLES[benchmark.kind]}, {setup(benchmark)}"

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name in benchmark.names:
            sizes, measured = _series(benchmark, name)
            spread = [each.p10 for each in measured], [each.p90 for each in measured]
            line(axes, looked[name], name, sizes, [each.p50 for each in measured], spread)
        size_axis(axes, [point.size for point in benchmark.points])
        axes.set_yscale("log")
        log_time(axes.yaxis)
        axes.set_ylabel("latency")
        axes.grid()
        legend(axes)

    alt = f"{title}: latency against size of the array, a line for each of {_list(benchmark.names)}"
    return Part(
        title,
        tuple(remarks(benchmark)),
        Plot(slug("latency", index + 1), alt, draw),
        (_latencies(benchmark, title),),
        (benchmark.path,),
    )


def _series(benchmark: Benchmark, name: str) -> tuple[list[int], list[Measured]]:
    points = [point for point in benchmark.points if name in point.series]
    return [point.size for point in points], [point.series[name] for point in points]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def _latencies(benchmark: Benchmark, title: str) -> Table:
    names = benchmark.names
    late = any(each.late_percent for p in benchmark.points for each in p.series.values())
    rows: list[tuple[str | Cell, ...]] = []
    for point in benchmark.points:
        cells: list[str | Cell] = [size_text(point.size)]
        for name in names:
            each = point.series.get(name)
            cells.append(NONE if each is None else spread_us(each.p10, each.p50, each.p90))
        if late:
            cells.append(percent(next(iter(point.series.values())).late_percent))
        rows.append(tuple(cells))
    head = ("array", *names, *(["late, of wagma's"] if late else []))
    return table(f"Latency: {title}", head, rows)


# ---- ratios --------------------------------------------------------------------------------------


def ratios(found: Found) -> Section | None:
    """How many times as long as wagma the others take."""
    looked = palette(found)
    parts = [
        _ratios(each, looked, index)
        for index, each in enumerate(by_size(found))
        if len(each.names) > 1
    ]
    if not parts:
        return None
    text = (
        "How many times as long as wagma's the median latency of another library is, in the same "
        "run: above 1 wagma is faster. There is no ratio where one was called from C and the other "
        "from Python.",
    )
    return Section("ratios", "Beside other libraries", tuple(parts), text)


def _ratios(benchmark: Benchmark, looked: Looks, index: int) -> Part:
    title = f"{TITLES[benchmark.kind]}, {setup(benchmark)}"
    others = benchmark.names[1:]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axhline(1, color=FAINT, linewidth=1.2)
        for name in others:
            sizes, measured = _series(benchmark, name)
            known = [
                (size, each.ratio)
                for size, each in zip(sizes, measured, strict=True)
                if each.ratio is not None
            ]
            line(axes, looked[name], name, [s for s, _ in known], [r for _, r in known])
        size_axis(axes, [point.size for point in benchmark.points])
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}{TIMES}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("latency / wagma's")
        axes.grid()
        legend(axes)

    rows: list[tuple[str | Cell, ...]] = []
    for point in benchmark.points:
        found = [point.series.get(name) for name in others]
        texts = [
            NONE if each is None or each.ratio is None else times(each.ratio) for each in found
        ]
        rows.append((size_text(point.size), *texts))
    alt = f"{title}: latency of {_list(others)} divided by wagma's, against size of the array"
    return Part(
        title,
        (),
        Plot(slug("ratio", index + 1), alt, draw),
        (table(f"Latency divided by wagma's: {title}", ("array", *others), rows),),
        (benchmark.path,),
    )
