"""The figures of all ranks at the end of a training. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TypedDict

from wagma.units import percent_text, plural, time_text

__all__ = ["Measure", "Summary", "own_figures", "summarize", "table"]

# What is compared between ranks, and how it is shown.
_MEASURES = ("steps", "versions_per_second", "late_share", "waited_seconds")
_NAMED = 16  # ranks whose late shares are listed: of more, those that are latest


class Measure(TypedDict):
    """A figure of all ranks.

    Attributes:
        min: the least.
        median: the middle one.
        max: the largest.
        ranks: of each rank.
    """

    min: float
    median: float
    max: float
    ranks: list[float]


Summary = dict[str, Measure]


def own_figures(
    stats: Mapping[str, int | float], versions: int, seconds: float
) -> dict[str, float]:
    """Return what this rank tells the others.

    Args:
        stats: of its optimizer.
        versions: that it passed while it logged, for `seconds`.
        seconds: see `versions`.
    """
    rate = versions / seconds if seconds > 0 else 0.0
    known = {**stats, "versions_per_second": rate}
    return {name: float(known.get(name, 0.0)) for name in _MEASURES}


def summarize(figures: Sequence[Mapping[str, float]]) -> Summary:
    """Return least, median and largest of the figures of all ranks, given by rank."""
    found: Summary = {}
    for name in _MEASURES:
        ranks = [own[name] for own in figures]
        found[name] = Measure(
            min=min(ranks), median=statistics.median(ranks), max=max(ranks), ranks=ranks
        )
    return found


def table(summary: Summary, version: int) -> str:
    """Return a summary as lines of text.

    Args:
        summary: of all ranks.
        version: that rank 0 has reached.
    """
    size = len(summary["steps"]["ranks"])
    lines = [
        f"{plural(size, 'rank')} at version {version}",
        f"  {'':14}{'min':>12}{'median':>12}{'max':>12}",
    ]
    for name in _MEASURES:
        one = summary[name]
        shown = [_text(name, value) for value in (one["min"], one["median"], one["max"])]
        most = one["ranks"].index(one["max"])
        of_whom = f"  rank {most}" if one["max"] > one["min"] else ""
        title = name.replace("_", " ").removesuffix(" seconds").replace(" per second", "/s")
        lines.append(f"  {title:14}{shown[0]:>12}{shown[1]:>12}{shown[2]:>12}{of_whom}")
    late = enumerate(summary["late_share"]["ranks"])
    latest = sorted(late, key=lambda one: (-one[1], one[0]))[:_NAMED]
    listed = ", ".join(f"rank {rank} {percent_text(share)}" for rank, share in sorted(latest))
    lines.append(f"  late: {listed}" + (", others less or as much" if size > _NAMED else ""))
    return "\n".join(lines)


def _text(name: str, value: float) -> str:
    if name == "late_share":
        return percent_text(value)
    if name == "waited_seconds":
        return time_text(value)
    return f"{value:.6g}" if name == "steps" else f"{value:.3g}"
