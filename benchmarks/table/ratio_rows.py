"""The rows that compare with MPI_Allreduce, from the raw samples of a report. Pure.

Over shared memory wagma is compared with the fastest MPI that is there. With transport="mpi" each
MPI is compared with its own MPI_Allreduce, and has rows of its own: they show what wagma adds to
its messages, and not which MPI has the faster ones.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from wagma.units import size_text, time_text

from ..figures import BASELINES, OF_GROUPS
from ..raw import from_json
from ..samples import Series
from . import plan
from .row import Compared, Report, Row, is_usual, late_share, launch_name, mpi_name, spread, summary

LOOP_NAMES = {"c": "from C", "python": "from Python"}
_ONE = f"quorum=1, grace={plan.GRACE:g}"
_WHAT = {
    "all": 'quorum="all"',
    "private": 'quorum="all", private array',
    "small": 'quorum="all"',
    "quorum1": _ONE,
    "out-of-place": f"{_ONE}, out of place (the sum, looked at where it is)",
    "mpi": 'quorum="all"',
    "mpi-groups": 'quorum="all", groups of 2',
}


def points(
    launch: dict[str, Any], size: int, loop: str = "python", lateness: float = 0.0
) -> Iterator[dict[str, Series]]:
    """Yield the series of each such case of a launch by their names.

    What cannot be called from C was called from Python, and is left out.
    """
    for case, point in zip(launch["cases"], launch["points"], strict=True):
        if (case["bytes"], case["loop"], case["lateness"]) == (size, loop, lateness):
            yield {name: one for name, one in from_json(point).items() if one.loop == loop}


def compare(
    launches: Iterable[dict[str, Any]],
    series: str,
    size: int,
    loop: str = "python",
    lateness: float = 0.0,
    baseline: str = "mpi",
) -> Compared | None:
    """Compare a series with the fastest MPI_Allreduce of all launches and forms, by the median.

    wagma's time is that of the same launch. `series` is one of `plan.WAGMA`, `baseline` one of
    `figures.BASELINES`; size, loop and lateness are the case's. None: it was not measured.
    """
    found = []
    for launch in launches:
        for point in points(launch, size, loop, lateness):
            for form, mpi in point.items() if series in point else ():
                if BASELINES[baseline](mpi):
                    own, theirs = summary(point[series]), summary(mpi)
                    ratio, late = theirs.median / own.median, late_share(point[series])
                    found.append(Compared(ratio, launch_name(launch), form, own, theirs, late))
    return min(found, key=lambda one: one.mpi.median, default=None)


def verdict(ratio: float, goal: float | None, late_share: float, late_max: float) -> str:
    """Return "reached", "missed", "too many late" (it does not count), or "" without a goal."""
    if late_share > late_max:
        return "too many late"
    if goal is None:
        return ""
    return "reached" if ratio >= goal else "missed"


def _launches(report: Report, ranks: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the launches of so many ranks at mpi4py's thread level, and at other levels."""
    found = [launch for launch in report["launches"] if launch["ranks"] == ranks]
    return [one for one in found if is_usual(one)], [one for one in found if not is_usual(one)]


# ---- over shared memory --------------------------------------------------------------------------


def beside_mpi(report: Report, group: str) -> Iterator[Row]:
    """Compare large arrays, or small ones of two ranks from C and from Python."""
    if group == "small":
        cases = [(plan.SMALL_RANKS, size, loop) for loop in plan.LOOPS for size in report["small"]]
    else:
        cases = [(ranks, size, "python") for ranks in report["ranks"] for size in report["large"]]
    for ranks, size, loop in cases:
        usual, others = _launches(report, ranks)
        case = plan.COMPARED[group], size, loop
        # The goals are against what mpi4py asks MPI for; the other levels are told beside them.
        best = compare(usual, *case) or compare(others, *case)
        if best is None:
            continue
        goal = plan.GOALS[plan.COMPARED[group]].get(size)
        details = f"{spread(best.wagma)}; {best.launch} {_form(best)} {spread(best.mpi)}"
        if group in ("quorum1", "out-of-place"):
            details += f"; late {best.late_share:.1%}"
        for other in others:
            if one := compare([other], *case):
                details += f"; {one.ratio:.2f}x {one.launch}"
        called = f", {LOOP_NAMES[loop]}" if group == "small" else ""
        yield Row(
            group,
            f"{_WHAT[group]}, {size_text(size)}{called}",
            ranks,
            "" if goal is None else f">= {goal:g}x",
            f"{best.ratio:.2f}x",
            verdict(best.ratio, goal, best.late_share, plan.LATE_MAX),
            details,
            best,
        )


def arrival(report: Report) -> Iterator[Row]:
    """Tell what the others' calls take, from their own arrivals, when one rank comes late."""
    for ranks in report["ranks"]:
        usual, others = _launches(report, ranks)
        for lateness in plan.LATENESS:
            case = plan.COMPARED["arrival"], plan.ARRIVAL_SIZE, "python", lateness
            best = compare(usual, *case) or compare(others, *case)
            if best is None:
                continue
            yield Row(
                "arrival",
                f'quorum=1, grace="auto", a rank comes {lateness * 1e3:g} ms late: the others, '
                f"{size_text(plan.ARRIVAL_SIZE)}",
                ranks,
                "",
                time_text(best.wagma.median),
                "",
                f"{spread(best.wagma)}, late {best.late_share:.1%}; {best.launch} {_form(best)} "
                f"{spread(best.mpi)}, late 0%",
                best,
            )


def _form(found: Compared) -> str:
    return found.form.removeprefix("MPI_Allreduce ")


# ---- over messages -------------------------------------------------------------------------------


def over_mpi(report: Report, group: str) -> Iterator[Row]:
    """Compare sums of all ranks or of groups, over each MPI, with its sums of all ranks."""
    series = plan.ALONE[group]
    for ranks in sorted({*report["ranks"], *report["mpi_ranks"]}):
        usual, _ = _launches(report, ranks)
        for launch in usual:
            for size in plan.mpi_sizes(report["over_mpi"], ranks):
                found = compare([launch], series, size)
                if found is None:
                    continue
                goal = plan.GOALS[series].get(size)
                details = f"{spread(found.wagma)}; {found.form} {spread(found.mpi)}"
                if beside := compare([launch], series, size, baseline=OF_GROUPS):
                    details += f"; {beside.form} {spread(beside.mpi)}"
                yield Row(
                    group,
                    f'transport="mpi", {_WHAT[group]}, {mpi_name(launch)}, {size_text(size)}',
                    ranks,
                    "" if goal is None else f">= {goal:.2g}x",
                    f"{found.ratio:.2f}x",
                    verdict(found.ratio, goal, found.late_share, 0.0),
                    details,
                    found,
                )
