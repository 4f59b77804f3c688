"""What a late rank costs the others: blocked time against its delay. Pure."""

from matplotlib.figure import Figure

from wagma.report.document import Cell, Part, Plot, Row, Section, table
from wagma.report.records import Benchmark, Found
from wagma.report.sections.axes import delay_axis, legend, line, log_time, palette
from wagma.report.sections.words import TIMES, percent, remarks, setup, spread_us, times, us
from wagma.report.style import FAINT, Looks
from wagma.units import NONE, size_text


def by_delay(found: Found) -> list[tuple[int, Benchmark]]:
    """Return the benchmarks whose points differ in delay, by the size of the arrays."""
    return [
        (size, each)
        for each in found.benchmarks
        if each.kind == "skew"
        for size in dict.fromkeys(point.size for point in each.points)
    ]


def delays(found: Found) -> Section:
    """Show blocked time against delay."""
    parts = [_delays(size, each, palette(found)) for size, each in by_delay(found)]
    text = (
        "A rank comes late by the delay. Shown is how long the call blocks the rank that it blocks "
        "longest: the median over the iterations, with the band from the 10th to the 90th "
        "percentile. Who waits for everybody pays at least the delay; late contributions are the "
        "price of not waiting, one rank's share is what the delay asks for.",
    )
    return Section("delays", "Blocked time against delay", tuple(parts), text)


def _delays(size: int, benchmark: Benchmark, looked: Looks) -> Part:
    title = f"Allreduce of {size_text(size)}, {setup(benchmark)}"
    points = [point for point in benchmark.points if point.size == size]
    at = [point.delay_us or 0.0 for point in points]
    names = [name for name in benchmark.names if all(name in point.series for point in points)]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        late = [delay for delay in at if delay > 0]
        axes.plot(late, late, color=FAINT, linewidth=1, ls=(0, (2, 2)), label="the delay itself")
        for name in names:
            measured = [point.series[name] for point in points]
            spread = [each.own.p10 for each in measured], [each.own.p90 for each in measured]
            line(axes, looked[name], name, at, [each.own.p50 for each in measured], spread)
        delay_axis(axes, at)
        axes.set_yscale("log")
        log_time(axes.yaxis)
        axes.set(xlabel="a rank comes late by", ylabel="blocked in the call")
        axes.grid()
        legend(axes)

    rows: list[Row] = []
    for delay, point in zip(at, points, strict=True):
        cells: list[str | Cell] = [us(delay) if delay else "0"]
        for name in names:
            each = point.series[name]
            ratio = "" if each.ratio is None or name == names[0] else f", {times(each.ratio)}"
            spread = spread_us(each.own)
            cells.append(Cell(f"{spread.text}{ratio}", spread.small))
        cells.append(percent(point.series[names[0]].late_percent) if names else NONE)
        rows.append(tuple(cells))
    head = ("late by", *names, "late, of wagma's")
    alt = (
        f"{title}: blocked time against the delay of a rank, a line for each of {', '.join(names)}"
    )
    return Part(
        title,
        tuple(remarks(benchmark)),
        Plot("delay", alt, draw),
        (table(f"Blocked time: {title}; {TIMES}: divided by wagma's", head, rows),),
        (benchmark.path,),
    )
