"""Reductions that are posted: how much of them computing hides, and who pays. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from wagma.report.document import Cell, Part, Plot, Section, table
from wagma.report.records import Benchmark, Found, Point
from wagma.report.sections.axes import legend, line, palette, plain, short, size_axis
from wagma.report.sections.words import NONE, percent, remarks, setup, slug, us
from wagma.report.style import INK, Look
from wagma.units import size_text

__all__ = ["overlap"]

Looks = Mapping[str, Look]


def overlap(found: Found) -> Section | None:
    """Posted reductions."""
    looked = palette(found)
    hiding = [each for each in found.benchmarks if each.kind == "iallreduce" and each.points]
    late = [(b, point) for b in found.benchmarks if b.kind == "overlap" for point in b.points]
    parts = [_hidden(each, looked, index) for index, each in enumerate(hiding)]
    parts += [_paid(each, point, looked, index) for index, (each, point) in enumerate(late)]
    if not parts:
        return None
    text = ("A reduction is posted, the rank computes, and then waits for it.",)
    return Section("overlap", "Computing while reducing", tuple(parts), text)


def _hidden(benchmark: Benchmark, looked: Looks, index: int) -> Part:
    title = f"Share that computing hides, {setup(benchmark)}"

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for name in benchmark.names:
            known = [
                (point.size, value)
                for point in benchmark.points
                if name in point.series
                and (value := point.series[name].overlap_percent) is not None
            ]
            line(axes, looked[name], name, [s for s, _ in known], [v for _, v in known])
        size_axis(axes, [point.size for point in benchmark.points])
        axes.set_ylim(0, 104)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        axes.set_ylabel("of the reduction, hidden")
        axes.grid()
        legend(axes)

    rows: list[tuple[str | Cell, ...]] = []
    for point in benchmark.points:
        found = [point.series.get(name) for name in benchmark.names]
        rows.append(
            (
                size_text(point.size),
                *(NONE if each is None else percent(each.overlap_percent) for each in found),
            )
        )
    alt = (
        f"{title}: percent of the reduction against size of the array, a line for each of "
        f"{', '.join(benchmark.names)}"
    )
    return Part(
        title,
        tuple(remarks(benchmark)),
        Plot(slug("hidden", index + 1), alt, draw),
        (table(title, ("array", *benchmark.names), rows),),
        (benchmark.path,),
    )


def _paid(benchmark: Benchmark, point: Point, looked: Looks, index: int) -> Part:
    late = benchmark.settings["lateness"]
    title = f"A rank posts {us(1e6 * late)} late: {size_text(point.size)}, {setup(benchmark)}"
    measured = [each for each in point.series.values() if each.paid_p50 is not None]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = np.arange(len(measured))[::-1]
        paid = np.array([each.paid_p50 or 0.0 for each in measured]) / 1e3
        worst = np.array([each.paid_p90 or 0.0 for each in measured]) / 1e3
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
        known = [(p, m.delayed_p50) for p, m in zip(places, measured, strict=True) if m.delayed_p50]
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

    rows: list[tuple[str | Cell, ...]] = [
        (each.name, us(each.paid_p50), us(each.paid_p90), us(each.delayed_p50)) for each in measured
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
        title,
        text,
        Plot(slug("paid", index + 1), alt, draw),
        (table(title, head, rows),),
        (benchmark.path,),
    )
