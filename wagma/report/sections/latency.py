"""Latency against size, how it compares with wagma's, and how much of it computing hides. Pure."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from wagma.report.document import Cell, Part, Plot, Row, Section, table
from wagma.report.records import Benchmark, Found, Measured
from wagma.report.sections.axes import legend, line, log_time, palette, size_axis
from wagma.report.sections.words import TIMES, percent, remarks, setup, spread_us, times
from wagma.report.style import FAINT, Looks
from wagma.units import NONE, size_text

TITLES = {
    "allreduce": "Allreduce",
    "group-allreduce": "Allreduce in groups",
    "bandwidth": "Allreduce of large arrays",
}


def by_size(found: Found) -> list[Benchmark]:
    """Return the benchmarks whose points differ in size."""
    return [each for each in found.benchmarks if each.kind in TITLES and each.points]


def latency(found: Found) -> Section:
    """Show latency against size."""
    parts = [_latency(each, palette(found)) for each in by_size(found)]
    text = (
        "Lines are medians over the iterations of the slowest rank's time in the call; bands, and "
        "the small figures, reach from the 10th to the 90th percentile.",
    )
    return Section("latency", "Latency against size", tuple(parts), text)


def _latency(benchmark: Benchmark, looked: Looks) -> Part:
    title = f"{TITLES[benchmark.kind]}, {setup(benchmark)}"
    names = benchmark.names

    def draw(figure: Figure) -> None:
        axes = _lines(figure, benchmark, names, looked, lambda each: each.own.p50, spread=True)
        axes.set_yscale("log")
        log_time(axes.yaxis)
        axes.set_ylabel("latency")

    head: tuple[str, ...] = ("array", *names)
    rows = _rows(benchmark, names, lambda each: spread_us(each.own))
    if any(each.late_percent for point in benchmark.points for each in point.series.values()):
        head = (*head, "late, of wagma's")
        late = [percent(point.wagma.late_percent) for point in benchmark.points]
        rows = [(*row, each) for row, each in zip(rows, late, strict=True)]
    alt = f"{title}: latency against size of the array, a line for each of {', '.join(names)}"
    return Part(
        title,
        tuple(remarks(benchmark)),
        Plot("latency", alt, draw),
        (table(f"Latency: {title}", head, rows),),
        (benchmark.path,),
    )


def ratios(found: Found) -> Section:
    """Show how many times as long as wagma the others take."""
    parts = [_ratios(each, palette(found)) for each in by_size(found) if len(each.names) > 1]
    text = (
        "How many times as long as wagma's the median latency of another library is, in the same "
        "run: above 1 wagma is faster. There is no ratio where one was called from C and the other "
        "from Python.",
    )
    return Section("ratios", "Beside other libraries", tuple(parts), text)


def _ratios(benchmark: Benchmark, looked: Looks) -> Part:
    title = f"{TITLES[benchmark.kind]}, {setup(benchmark)}"
    others = benchmark.names[1:]

    def draw(figure: Figure) -> None:
        axes = _lines(figure, benchmark, others, looked, lambda each: each.ratio)
        axes.axhline(1, color=FAINT, linewidth=1.2, zorder=1.9)  # below the lines
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("latency / wagma's")

    rows = _rows(benchmark, others, lambda each: NONE if each.ratio is None else times(each.ratio))
    alt = f"{title}: latency of {', '.join(others)} divided by wagma's, against size of the array"
    return Part(
        title,
        (),
        Plot("ratio", alt, draw),
        (table(f"Latency divided by wagma's: {title}", ("array", *others), rows),),
        (benchmark.path,),
    )


def hidden(benchmark: Benchmark, looked: Looks) -> Part:
    """Show how much of posted reductions computing hides, against size."""
    title = f"Share that computing hides, {setup(benchmark)}"
    names = benchmark.names

    def draw(figure: Figure) -> None:
        axes = _lines(figure, benchmark, names, looked, lambda each: each.overlap_percent)
        axes.set_ylim(0, 104)
        axes.yaxis.set_major_formatter("{x:g}%")
        axes.set_ylabel("of the reduction, hidden")

    rows = _rows(benchmark, names, lambda each: percent(each.overlap_percent))
    alt = (
        f"{title}: percent of the reduction against size of the array, a line for each of "
        f"{', '.join(names)}"
    )
    return Part(
        title,
        tuple(remarks(benchmark)),
        Plot("hidden", alt, draw),
        (table(title, ("array", *names), rows),),
        (benchmark.path,),
    )


# ---- series over sizes ---------------------------------------------------------------------------


def _lines(
    figure: Figure,
    benchmark: Benchmark,
    names: Sequence[str],
    looked: Looks,
    value: Callable[[Measured], float | None],
    *,
    spread: bool = False,
) -> Axes:
    """Draw a line for each series, and its band from p10 to p90 if `spread`."""
    axes = figure.subplots()
    for name in names:
        known = [
            (point.size, y, point.series[name].own)
            for point in benchmark.points
            if name in point.series and (y := value(point.series[name])) is not None
        ]
        band = [own.p10 for _, _, own in known], [own.p90 for _, _, own in known]
        sizes, ys = [size for size, _, _ in known], [y for _, y, _ in known]
        line(axes, looked[name], name, sizes, ys, band if spread else None)
    size_axis(axes, [point.size for point in benchmark.points])
    axes.grid()
    legend(axes)
    return axes


def _rows(
    benchmark: Benchmark, names: Sequence[str], cell: Callable[[Measured], str | Cell]
) -> list[Row]:
    return [
        (
            size_text(point.size),
            *(cell(point.series[name]) if name in point.series else NONE for name in names),
        )
        for point in benchmark.points
    ]
