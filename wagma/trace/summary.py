"""What each rank did with its time, by its timeline. Pure, but for the table."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from wagma.units import percent_text

from .clocks import align
from .files import Timeline
from .merge import arrivals, last_to_come

WIDTH = 1000  # no row is cut or wrapped
WORK = ("write", "reduce", "merge")


@dataclass(frozen=True)
class RankSummary:
    """Times of one rank of one handle, from its first call to the end of its last."""

    handle: str
    rank: int
    calls: int
    late: int  # calls whose version was pinned without this rank's contribution
    total_s: float  # of that
    computing: float  # share of it between calls, and while a posted call was pending
    waiting: float  # share of it that calls waited
    reducing: float  # share of it that went into copies and sums
    waited_for: str | None  # what most of the waiting was for; None: it did not wait
    last: int  # versions in which this rank came last of its group
    behind_s: float  # how long after the first of its group it came, on average
    broke: bool  # a call ended in an error
    dropped: int  # events that are missing


def summarize(timelines: Sequence[Timeline]) -> list[RankSummary]:
    """Return a summary of each rank of each handle, ordered by handle and rank."""
    came = arrivals(timelines, align(timelines))
    order = list(dict.fromkeys(timeline.collective for timeline in timelines))
    ordered = sorted(timelines, key=lambda each: (order.index(each.collective), each.rank))
    rows = []
    for timeline in ordered:
        calls = [event for event in timeline.events if event.kind == "call"]
        began = min((call.began_ns for call in calls), default=0)
        ended = max((call.ended_ns for call in calls), default=0)
        total = ended - began
        spent: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for event in timeline.events:
            if not began <= event.began_ns < ended:  # creation, and the end over a transport
                continue
            spent[event.kind] += event.duration_ns
            if event.kind == "wait":
                reasons[event.arguments["for"]] += event.duration_ns
        last, behind = 0, []
        for call in calls:
            group = call.arguments.get("group")
            latest = last_to_come(came, timeline, call.version, group)
            if latest is None:
                continue
            ranks = came[timeline.collective, call.version]
            first = min(ns for rank, ns in ranks.items() if group is None or rank in group)
            behind.append(ranks.get(timeline.rank, first) - first)
            last += latest[0] == timeline.rank
        rows.append(
            RankSummary(
                handle=timeline.handle,
                rank=timeline.rank,
                calls=len(calls),
                late=sum(bool(call.arguments["late"]) for call in calls),
                total_s=total / 1e9,
                computing=spent["compute"] / total if total else 0.0,
                waiting=spent["wait"] / total if total else 0.0,
                reducing=sum(spent[kind] for kind in WORK) / total if total else 0.0,
                waited_for=reasons.most_common(1)[0][0] if reasons else None,
                last=last,
                behind_s=sum(behind) / len(behind) / 1e9 if behind else 0.0,
                broke=any(call.arguments["broke"] for call in calls),
                dropped=timeline.dropped,
            )
        )
    return rows


def table(rows: Sequence[RankSummary]) -> str:
    """Return the rows as text."""
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    several = len({row.handle for row in rows}) > 1
    shown = Table(box=box.SIMPLE_HEAD)
    for name in (
        *(["handle"] if several else []),
        "rank",
        "calls",
        "late",
        "seconds",
        "computing",
        "reducing",
        "waiting",
        "for",
        "came last",
        "behind",
        "",
    ):
        shown.add_column(name, justify="left" if name in ("handle", "for", "") else "right")
    for row in rows:
        remarks = ["broke"] if row.broke else []
        if row.dropped:
            remarks.append(f"{row.dropped} events dropped")
        shown.add_row(
            *([escape(row.handle)] if several else []),
            str(row.rank),
            str(row.calls),
            str(row.late),
            f"{row.total_s:.3f}",
            percent_text(row.computing),
            percent_text(row.reducing),
            percent_text(row.waiting),
            row.waited_for or "",
            str(row.last),
            f"{row.behind_s * 1e3:.3f} ms",
            ", ".join(remarks),
        )
    text = StringIO()
    Console(file=text, width=WIDTH).print(shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n") + "\n"
