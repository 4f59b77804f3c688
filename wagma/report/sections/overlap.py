"""Reductions that are posted: how much of them computing hides, and who pays. Pure."""

import numpy as np
from matplotlib.figure import Figure

from wagma.report.document import Part, Plot, Row, Section, table
from wagma.report.records import Benchmark, Found, Point
from wagma.report.sections.axes import legend, palette, plain, short
from wagma.report.sections.latency import hidden
from wagma.report.sections.words import remarks, setup, us
from wagma.report.style import INK, Looks
from wagma.units import size_text


def overlap(found: Found) -> Section:
    """Show posted reductions."""
    hiding = [each for each in found.benchmarks if each.kind == "iallreduce" and each.points]
    late = [(b, point) for b in found.benchmarks if b.kind == "overlap" for point in b.points]
    parts = [hidden(each, palette(found)) for each in hiding]
    parts += [_paid(each, point, palette(found)) for each, point in late]
    text = ("A reduction is posted, the rank computes, and then waits for it.",)
    return Section("overlap", "Computing while reducing", tuple(parts), text)


def _paid(benchmark: Benchmark, point: Point, looked: Looks) -> Part:
    late = benchmark.settings["lateness"]
    title = f"A rank posts {us(1e6 * late)} late: {size_text(point.size)}, {setup(benchmark)}"
    measured = [each for each in point.series.values() if each.paid_p50_us is not None]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = np.arange(len(measured))[::-1]
        paid = np.array([each.paid_p50_us or 0.0 for each in measured]) / 1e3
        worst = np.array([each.paid_p90_us or 0.0 for each in measured]) / 1e3
        axes.barh(places, paid, 0.6, color=[looked[each.name].colour for each in measured])
        axes.errorbar(
            paid,
            places,
            xerr=[np.zeros_like(paid), np.maximum(worst - paid, 0)],
            fmt="none",
            ecolor=INK,
            elinewidth=1,
            capsize=3,
            label="to the 90th percentile",
        )
        known = [
            (p, m.delayed_p50_us) for p, m in zip(places, measured, strict=True) if m.delayed_p50_us
        ]
        axes.plot(
            [value / 1e3 for _, value in known],
            [place for place, _ in known],
            "D",
            color="white",
            markeredgecolor=INK,
            label="the late rank",
        )
        axes.set_yticks(places, [short(each.name) for each in measured])
        axes.set_xlabel("in posting and waiting, ms")
        plain(axes, "x")
        legend(axes)

    rows: list[Row] = [
        (each.name, us(each.paid_p50_us), us(each.paid_p90_us), us(each.delayed_p50_us))
        for each in measured
    ]
    alt = (
        f"{title}: time that the other ranks spend in posting and waiting, a bar for each of "
        f"{', '.join(each.name for each in measured)}"
    )
    text = (
        "Bars are medians of what the slowest of the punctual ranks spends in posting and waiting, "
        "without computing. Present: nobody is late.",
        *remarks(benchmark),
    )
    head = ("series", "paid, median", "paid, p90", "late rank")
    return Part(
        title, text, Plot("paid", alt, draw), (table(title, head, rows),), (benchmark.path,)
    )
