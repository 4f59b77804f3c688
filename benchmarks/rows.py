"""The rows of the table, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from plan import COMPARED, COST_SIZE, GOALS, LATE_MAX, ROWS, SMALL_RANKS
from ratios import Compared, Measured, Summary, against_better, slowest, summarise, verdict

__all__ = ["Row", "assemble", "failures", "size_text", "time_text"]

LATE_GOAL = 0.15  # with grace="auto"
P50_GOAL, P99_GOAL = 1e-3, 10e-3  # seconds in a call, beside grace, while another rank sleeps
CPU_GOAL = 1e-3  # share of a core between calls; reading the clock and going to sleep take some
MEMORY_GOAL = 1.01  # times the formula, which leaves out the words of the protocol
MEMORY_WORDS = 64 << 10

DEFAULT_LEVEL = "(THREAD_MULTIPLE)"  # mpi4py's
MPI_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}

Report = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table; `compared` has the numbers of a ratio."""

    group: str
    what: str
    ranks: int
    goal: str
    measured: str
    verdict: str
    details: str
    compared: Compared | None = None


def size_text(size: int) -> str:
    """4 B, 16 KiB, 100 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:#.3g}".rstrip(".") + f" {name}"
    return f"{seconds * 1e9:.0f} ns"


def assemble(report: Report) -> list[Row]:
    """All rows for which there are samples, in the order of ROWS."""
    makers: dict[str, Callable[[Report], Iterator[Row]]] = {
        **{group: _ratios(group) for group in COMPARED},
        "cost": _cost,
        "grace": _grace,
        "straggler": _straggler,
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


def _launch_name(launch: dict[str, Any]) -> str:
    level = launch["by_rank"][0]["thread_level"]
    return f"{MPI_NAMES[launch['mpi']]} (THREAD_{level.upper()})"


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
            return Measured(_launch_name(launch), wagma, mpi, late)
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
    details = f"{_spread(best.wagma)}; {best.launch} {best.form.removeprefix('mpi ')} "
    details += _spread(best.mpi)
    if group == "quorum1":
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
}


def _spread(s: Summary) -> str:
    return f"{time_text(s.median)} [{time_text(s.p10)}, {time_text(s.p90)}]"


def _cost(report: Report) -> Iterator[Row]:
    for launch in report["launches"]:
        for i, case in enumerate(launch["cases"]):
            if case["bytes"] != COST_SIZE or not _launch_name(launch).endswith(DEFAULT_LEVEL):
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
                        f"{_spread(times)}, beside {_launch_name(launch)}, late {late:.1%}",
                    )


# ---- scenarios -----------------------------------------------------------------------------------


def _reached(yes: bool) -> str:
    return "reached" if yes else "missed"


def _grace(report: Report) -> Iterator[Row]:
    s = report["scenario"]
    for launch in report["launches"]:
        by_rank = [rank["grace"] for rank in launch["by_rank"] if "grace" in rank]
        if not by_rank:
            continue
        late = np.array([rank["late"] for rank in by_rank])
        grace = np.array([rank["grace"] for rank in by_rank])
        yield Row(
            "grace",
            f'grace="auto", steps of {s["grace_step"] * 1e3:g} ms +- {s["grace_jitter"]:.0%}',
            launch["ranks"],
            f"< {LATE_GOAL:.0%} late",
            f"{late.mean():.1%} late",
            _reached(late.mean() < LATE_GOAL),
            f"{late.shape[1]} versions; grace {time_text(float(np.median(grace)))} (median)",
        )


def _straggler(report: Report) -> Iterator[Row]:
    s = report["scenario"]
    for launch in report["launches"]:
        by_rank = [rank["straggler"] for rank in launch["by_rank"] if "straggler" in rank]
        others = [rank for rank in by_rank if not rank["sleeper"]]
        if not others:
            continue
        handles = [handle for rank in others for handle in rank["handles"]]
        times = np.concatenate([handle["samples_ns"] for handle in handles]) * 1e-9
        grace = float(np.median(np.concatenate([handle["grace"] for handle in handles])))
        behind = max(max(handle["behind"]) for handle in handles)
        mpi = [rank["mpi"]["samples_ns"] for rank in others if "mpi" in rank]
        for percent, goal in ((50, P50_GOAL), (99, P99_GOAL)):
            blocked = float(np.percentile(times, percent))
            details = (
                f"{times.size} calls, grace {time_text(grace)} (median), sleeper at most {behind} "
                f"of {s['window']} versions behind"
            )
            if mpi:
                mpi_times = np.array(mpi) * 1e-9
                theirs = float(np.percentile(mpi_times, percent))
                asleep = float(np.median(mpi_times[:, :: s["period"]]))
                details += (
                    f"; {_launch_name(launch)} {time_text(theirs)}, and {time_text(asleep)} in the "
                    "versions in which the rank sleeps"
                )
            yield Row(
                "straggler",
                f"a rank sleeps {s['sleep'] * 1e3:g} ms: p{percent} of the others' calls",
                launch["ranks"],
                f"<= {goal * 1e3:g} ms + grace",
                time_text(blocked),
                _reached(blocked <= goal + grace),
                details,
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
        _reached(idle["threads"] == 0 and share < CPU_GOAL),
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
            _reached(measured <= formula * MEMORY_GOAL + MEMORY_WORDS),
            f"the engine counts {counted} bytes; a process maps {resident / size:.2f} arrays, "
            "with what it read of the others'",
        )


def _binding(report: Report) -> Iterator[Row]:
    if binding := report["alone"].get("binding"):
        times = summarise(binding["by_rank"][0]["samples_ns"])
        yield Row("binding", "a call, 4 B", 1, "", time_text(times.median), "", _spread(times))
