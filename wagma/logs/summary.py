"""The figures of all ranks at the end of a training. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TypedDict

from wagma.units import percent_text, plural, time_text

# Figures that are compared between ranks.
_MEASURES = ("steps", "versions_per_second", "late_share", "waited_seconds")
_NAMED = 16  # ranks with the largest late shares that are listed


class Measure(TypedDict):
    """A figure of all ranks."""

    min: float  # smallest value
    median: float  # median
    max: float  # largest value
    ranks: list[float]  # values by rank


Summary = dict[str, Measure]


def own_figures(
    stats: Mapping[str, int | float], versions: int, seconds: float
) -> dict[str, float]:
    """Return the figures that this rank contributes to a summary.

    Args:
        stats: stats of its optimizer.
        versions: number of versions between its first and last line.
        seconds: seconds between its first and last line.
    """
    rate = versions / seconds if seconds > 0 else 0.0
    known = {**stats, "versions_per_second": rate}
    return {name: float(known.get(name, 0.0)) for name in _MEASURES}


def summarize(figures: Sequence[Mapping[str, float]]) -> Summary:
    """Return minimum, median and maximum of all ranks' figures, given by rank."""
    summary: Summary = {}
    for name in _MEASURES:
        ranks = [own[name] for own in figures]
        summary[name] = Measure(
            min=min(ranks), median=statistics.median(ranks), max=max(ranks), ranks=ranks
        )
    return summary


def table(summary: Summary, version: int) -> str:
    """Return a summary as a table in text.

    Args:
        summary: summary of all ranks.
        version: version that rank 0 has reached.
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
        rank_of_max = f"  rank {most}" if one["max"] > one["min"] else ""
        title = name.replace("_", " ").removesuffix(" seconds").replace(" per second", "/s")
        lines.append(f"  {title:14}{shown[0]:>12}{shown[1]:>12}{shown[2]:>12}{rank_of_max}")
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
