"""Timelines: a window of a run as a picture, and what each rank's time went into. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from wagma.report.document import Cell, Part, Plot, Row, Section, table
from wagma.report.records import Found, Trace
from wagma.report.sections.axes import legend, short
from wagma.report.sections.window import ACTIVITIES, window
from wagma.report.sections.words import us
from wagma.report.style import COMPUTING, FAINT, IN_CALL, INK, REDUCING, VERMILION, WAITING
from wagma.trace.files import missing_ranks
from wagma.trace.summary import RankSummary, summarize
from wagma.units import NONE, percent_text, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"computing": COMPUTING, "waiting": WAITING, "reducing": REDUCING}
LANE = 0.72  # of the distance between ranks
TALLEST = 9.0  # inches


def timeline(found: Found) -> Section:
    """Show pictures of the runs that have one, and the shares of every rank's time."""
    parts: list[Part] = []
    for trace in found.traces:
        rows = summarize(trace.timelines)
        parts += _picture(trace)
        parts += _shares(rows, trace.name, "shares", tuple(_notes(trace)))
    for each in found.summaries:
        parts += _shares(each.rows, each.path, "shares-of-summary", ())
    text = (
        "What each rank did when, by its own record. Computing is the time between calls; waiting "
        "and reducing are inside of them.",
    )
    return Section("timeline", "Timelines", tuple(parts), text)


def _notes(trace: Trace) -> list[str]:
    notes = []
    missing = missing_ranks(trace.timelines)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        notes.append(f"There is no file of {', '.join(missing[:3])}{more}.")
    dropped = sum(each.dropped for each in trace.timelines)
    if dropped:
        notes.append(f"Events are missing: {dropped}, over WAGMA_TRACE_LIMIT.")
    return notes


# ---- the picture ---------------------------------------------------------------------------------


def _picture(trace: Trace) -> list[Part]:
    shown = window(trace.timelines)
    if shown is None:
        return []
    span = f"versions {shown.first} to {shown.last} of {shown.handle}"

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, lane in enumerate(shown.lanes):
            y = -place
            _boxes(axes, lane.calls, y, IN_CALL, LANE)
            for kind, colour in COLOURS.items():
                _boxes(axes, lane.spans[kind], y, colour, LANE)
            late = lane.late_ms
            axes.plot(late, [y + LANE / 2 + 0.06] * len(late), "v", color=VERMILION, markersize=4.5)
        for version, ms in shown.syncs:
            axes.axvline(ms, color=INK, linewidth=0.9, ls=(0, (2, 2)))
            axes.annotate(
                f"{version}",
                (ms, 1),
                xycoords=("data", "axes fraction"),
                xytext=(-3, -1),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=8,
            )
        for kind, colour in COLOURS.items():
            axes.plot([], [], "s", color=colour, markersize=8, label=kind)
        axes.plot([], [], "s", color=IN_CALL, markersize=8, label="in the call, anything else")
        axes.plot([], [], "v", color=VERMILION, markersize=5, label="came too late")
        axes.plot([], [], color=INK, linewidth=0.9, ls=(0, (2, 2)), label="all ranks are averaged")
        step = max(1, -(-len(shown.lanes) // 40))
        ranks = [lane.rank for lane in shown.lanes]
        axes.set_yticks(
            [-place for place in range(len(ranks))][::step], [f"{r}" for r in ranks][::step]
        )
        axes.set_ylabel("rank")
        axes.set_xlim(0, shown.length_ms)
        axes.set_ylim(-len(ranks) + 0.45, 0.8)
        axes.set_xlabel("ms")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        legend(axes)

    rows: list[Row] = []
    for lane in shown.lanes:
        spent = [sum(end - begin for begin, end in lane.spans[kind]) for kind in ACTIVITIES]
        rows.append((str(lane.rank), *(us(1e3 * ms) for ms in spent), str(len(lane.late_ms))))
    alt = (
        f"Timeline of {span}: for each of {plural(len(shown.lanes), 'rank')} when it computed, "
        "waited and reduced"
    )
    text = f"{span[0].upper()}{span[1:]}, {shown.length_ms:.3g} ms."
    height = min(TALLEST, 1.3 + 0.42 * len(shown.lanes))
    head = ("rank", *ACTIVITIES, "late calls")
    return [
        Part(
            f"A window of {trace.name if trace.name != '.' else 'the run'}",
            (text,),
            Plot("timeline", alt, draw, height, wide=True),
            (table(f"In this window: {span}", head, rows),),
            (trace.name,),
        )
    ]


def _boxes(
    axes: Axes, spans: Sequence[tuple[float, float]], y: float, colour: str, height: float
) -> None:
    """Draw all spans of a kind as one path, so that pages stay small."""
    if not spans:
        return
    begins, ends = np.array(spans).T
    low, high = y - height / 2, y + height / 2
    corners = np.empty((len(spans), 5, 2))
    corners[:, [0, 1, 4], 0] = begins[:, None]
    corners[:, [2, 3], 0] = ends[:, None]
    corners[:, [0, 3, 4], 1] = low
    corners[:, [1, 2], 1] = high
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], len(spans))
    path = Path(corners.reshape(-1, 2), codes)
    # A patch would update the axes' limits, which are given, from each of its corners.
    axes.add_artist(PathPatch(path, facecolor=colour, edgecolor=colour, linewidth=0.4))


# ---- shares --------------------------------------------------------------------------------------


def _shares(
    rows: Sequence[RankSummary], name: str, plot: str, notes: tuple[str, ...]
) -> list[Part]:
    known = [row for row in rows if row.calls > 1]
    if not known:
        return []
    several = len({row.handle for row in known}) > 1
    labels = [f"{short(row.handle)}, {row.rank}" if several else str(row.rank) for row in known]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = -np.arange(len(known))
        left = np.zeros(len(known))
        for kind, colour in COLOURS.items():
            values = np.array([100 * getattr(row, kind) for row in known])
            axes.barh(places, values, 0.66, left=left, color=colour, label=kind)
            left += values
        step = max(1, -(-len(known) // 40))
        axes.set_yticks(places[::step], labels[::step])
        axes.set_ylabel("" if several else "rank")
        axes.set_xlim(0, max(100.0, float(left.max())))
        axes.set_xlabel("percent of the rank's time, from its first call to its last")
        axes.grid(axis="x", color=FAINT, alpha=0.25)
        legend(axes)

    cells: list[Row] = [
        (
            label,
            str(row.calls),
            Cell(str(row.late), percent_text(row.late / row.calls)),
            f"{row.total_s:.3g} s",
            percent_text(row.computing),
            Cell(percent_text(row.waiting), f"for {row.waited_for}" if row.waited_for else ""),
            percent_text(row.reducing),
            str(row.last),
            us(1e6 * row.behind_s),
            "broke" if row.broke else NONE,
        )
        for label, row in zip(labels, known, strict=True)
    ]
    head = (
        *(
            "handle, rank" if several else "rank",
            "calls",
            "late",
            "time",
            "computing",
            "waiting",
            "reducing",
            "came last",
        ),
        *("behind", "error"),
    )
    longest = max(known, key=lambda row: row.waiting)
    alt = (
        f"Shares of each rank's time that it computed, waited and reduced; most waiting: rank "
        f"{longest.rank}, {percent_text(longest.waiting)}"
    )
    what = "What each rank's time went into"
    return [
        Part(
            what,
            notes,
            Plot(plot, alt, draw, min(TALLEST, 1.2 + 0.3 * len(known))),
            (table(f"{what}: {name}", head, cells),),
            (name,),
        )
    ]
