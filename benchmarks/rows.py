"""The rows of the table, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import scenario_rows
from plan import COMPARED, COST_SIZE, GOALS, LATE_MAX, ROWS, SMALL_RANKS
from ratios import Measured, Summary, against_better, slowest, summarise, verdict
from row import DEFAULT_LEVEL, Report, Row, launch_name, reached, size_text, spread, time_text

__all__ = ["assemble", "failures"]

CPU_GOAL = 1e-3  # share of a core between calls; reading the clock and going to sleep take some
MEMORY_GOAL = 1.01  # times the formula, which leaves out the words of the protocol
MEMORY_WORDS = 64 << 10


def assemble(report: Report) -> list[Row]:
    """All rows for which there are samples, in the order of ROWS."""
    makers: dict[str, Callable[[Report], Iterator[Row]]] = {
        **{group: _ratios(group) for group in COMPARED},
        "cost": _cost,
        "grace": scenario_rows.grace,
        "straggler": scenario_rows.straggler,
        "iallreduce": scenario_rows.iallreduce,
        "k-of-p": scenario_rows.k_of_p,
        "passive": _passive,
        "memory": _memory,
        "binding": _binding,
    }
    return [row for group in ROWS if group in report["rows"] for row in makers[group](report)]


def failures(report: Report) -> list[str]:
    """What went wrong: launches that failed, and the first wrong result of everything measured."""
    found = list(report["failed"])

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("wrong"):
                found.append(f"{node['wrong']} wrong results; {node['first_wrong']}")
            for value in node.values():
                visit(value)
        elif isinstance(node, list) and node and isinstance(node[0], dict | list):
            for value in node:
                visit(value)

    visit(report["launches"])
    visit(report["alone"])
    return found


# ---- ratios --------------------------------------------------------------------------------------


def _series(launch: dict[str, Any], case: int, name: str) -> tuple[Summary, float]:
    """Times (maximum over the ranks) and late share of one series."""
    by_rank = [rank["cases"][case][name] for rank in launch["by_rank"]]
    late = sum(rank["late"] for rank in by_rank) / sum(rank["results"] for rank in by_rank)
    return summarise(slowest([rank["samples_ns"] for rank in by_rank])), late


def _measured(launch: dict[str, Any], size: int, series: str) -> Measured | None:
    for i, case in enumerate(launch["cases"]):
        forms = [name for name in case["series"] if name.startswith("mpi ")]
        if case["bytes"] == size and series in case["series"] and forms:
            wagma, late = _series(launch, i, series)
            mpi = {form: _series(launch, i, form)[0] for form in forms}
            return Measured(launch_name(launch), wagma, mpi, late)
    return None


def _ratios(group: str) -> Callable[[Report], Iterator[Row]]:
    def rows(report: Report) -> Iterator[Row]:
        for ranks in report["ranks"]:
            if group == "small" and ranks != SMALL_RANKS:
                continue
            for size in report["small" if group == "small" else "large"]:
                row = _ratio(report, group, ranks, size)
                if row is not None:
                    yield row

    return rows


def _ratio(report: Report, group: str, ranks: int, size: int) -> Row | None:
    series = COMPARED[group]
    launches = [launch for launch in report["launches"] if launch["ranks"] == ranks]
    measured = [m for launch in launches if (m := _measured(launch, size, series)) is not None]
    if not measured:
        return None
    # The goals are against what mpi4py asks MPI for; the other levels are told beside them.
    best = against_better([m for m in measured if m.launch.endswith(DEFAULT_LEVEL)] or measured)
    goal = GOALS.get((series, size))
    details = f"{spread(best.wagma)}; {best.launch} {best.form.removeprefix('mpi ')} "
    details += spread(best.mpi)
    if group in ("quorum1", "out-of-place"):
        details += f"; late {best.late_share:.1%}"
    for one in measured:
        if not one.launch.endswith(DEFAULT_LEVEL):
            details += f"; {against_better([one]).ratio:.2f}x {one.launch}"
    return Row(
        group,
        f"{_NAMES[group]}, {size_text(size)}{', from Python' if group == 'small' else ''}",
        ranks,
        "" if goal is None else f">= {goal:g}x",
        f"{best.ratio:.2f}x",
        verdict(best.ratio, goal, best.late_share, LATE_MAX),
        details,
        best,
    )


_NAMES = {
    "all": 'quorum="all"',
    "private": 'quorum="all", private array',
    "small": 'quorum="all"',
    "quorum1": "quorum=1",
    "out-of-place": "quorum=1, out of place (the sum, looked at where it is)",
}


def _cost(report: Report) -> Iterator[Row]:
    for launch in report["launches"]:
        for i, case in enumerate(launch["cases"]):
            if case["bytes"] != COST_SIZE or not launch_name(launch).endswith(DEFAULT_LEVEL):
                continue
            for name in ("wagma all", "wagma 1"):
                if name in case["series"]:
                    times, late = _series(launch, i, name)
                    what = "quorum=1" if name == "wagma 1" else 'quorum="all"'
                    yield Row(
                        "cost",
                        f"a call, {what}, {size_text(COST_SIZE)}",
                        launch["ranks"],
                        "",
                        time_text(times.median),
                        "",
                        f"{spread(times)}, beside {launch_name(launch)}, late {late:.1%}",
                    )


# ---- without MPI ---------------------------------------------------------------------------------


def _passive(report: Report) -> Iterator[Row]:
    passive = report["alone"].get("passive")
    if passive is None:
        return
    idle = passive["by_rank"][0]
    share = idle["cpu_ns"] * 1e-9 / passive["seconds"]
    yield Row(
        "passive",
        "between calls, while others call",
        len(passive["by_rank"]),
        f"no thread, CPU < {CPU_GOAL:.1%}",
        f"{idle['threads']} threads, {share:.4%}",
        reached(idle["threads"] == 0 and share < CPU_GOAL),
        f"{time_text(idle['cpu_ns'] * 1e-9)} of CPU in {passive['seconds']:g} s, "
        f"{passive['calls_of_others']} versions of the others",
    )


def _memory(report: Report) -> Iterator[Row]:
    for name, memory in report["alone"].get("memory", {}).items():
        by_rank, formula = memory["by_rank"], memory["formula"]
        measured = max(rank["allocated_bytes"] for rank in by_rank) / memory["ranks"]
        counted = max(rank["segment_bytes"] for rank in by_rank)
        resident = max(rank["resident_bytes"] for rank in by_rank)
        size = memory["bytes"]
        yield Row(
            "memory",
            f"shared memory per rank, {name}, {size_text(size)}",
            memory["ranks"],
            f"{formula / size:g} arrays",
            f"{measured / size:.3f} arrays",
            reached(measured <= formula * MEMORY_GOAL + MEMORY_WORDS),
            f"the engine counts {counted} bytes; a process maps {resident / size:.2f} arrays, "
            "with what it read of the others'",
        )


def _binding(report: Report) -> Iterator[Row]:
    if binding := report["alone"].get("binding"):
        times = summarise(binding["by_rank"][0]["samples_ns"])
        yield Row("binding", "a call, 4 B", 1, "", time_text(times.median), "", spread(times))
