"""What a call costs that has next to nothing to reduce, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from wagma.units import size_text, time_text

from .plan import COST_SIZES, GRACE, LOOPS
from .ratio_rows import LOOP_NAMES, points
from .ratios import Summary, late_share, summary
from .row import DEFAULT_LEVEL, Report, Row, launch_name, reached, spread

__all__ = ["cost"]

BINDING_GOAL = 0.8e-6  # seconds that a call from Python may take longer than from C
WHAT = {"wagma all": 'quorum="all"', "wagma 1": f"quorum=1, grace={GRACE:g}"}


def cost(report: Report) -> Iterator[Row]:
    """Calls from C and from Python, and what Python adds."""
    for launch in report["launches"]:
        if not launch_name(launch).endswith(DEFAULT_LEVEL):
            continue
        for size in COST_SIZES:
            found: dict[tuple[str, str], tuple[Summary, float]] = {}
            for loop in LOOPS:
                for point in points(launch, size, loop):
                    for name in WHAT.keys() & point.keys():
                        series = point[name]
                        if series.loop == loop:
                            found[name, loop] = summary(series), late_share(series)
            for name, what in WHAT.items():
                if all((name, loop) in found for loop in LOOPS):
                    of = {loop: found[name, loop] for loop in LOOPS}
                    yield _row(of, what, size, launch["ranks"], launch_name(launch))


def _row(
    of: dict[str, tuple[Summary, float]], what: str, size: int, ranks: int, beside: str
) -> Row:
    added = of["python"][0].median - of["c"][0].median
    details = [
        f"{LOOP_NAMES[loop]} {spread(times)}, late {late:.1%}" for loop, (times, late) in of.items()
    ]
    return Row(
        "cost",
        f"what Python adds to a call, {what}, {size_text(size)}",
        ranks,
        f"<= {time_text(BINDING_GOAL)}",
        ("-" if added < 0 else "") + time_text(abs(added)),
        reached(added <= BINDING_GOAL),
        f"{'; '.join(details)}; beside {beside}",
    )
