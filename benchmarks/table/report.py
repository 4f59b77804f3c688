"""A report as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wagma.units import size_text

from .row import Report, Row

__all__ = ["environment", "text"]

WIDTH = 1000  # no row is cut or wrapped; tables are only as wide as their longest row
COLUMNS = ("what", "ranks", "goal", "measured", "", "median [p10, p90]")


def text(report: Report, rows: list[Row]) -> str:
    """Return the environment, the table with goals, and what was left out."""
    left_out = [f"Left out: {reason}." for reason in report["left_out"]]
    return "\n".join([*environment(report), "", *_terminal(rows), *left_out]) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    return row.what, str(row.ranks), row.goal, row.measured, row.verdict, row.details


def _terminal(rows: list[Row]) -> Iterator[str]:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in COLUMNS:
        table.add_column(column, no_wrap=True, justify="right" if column == "ranks" else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in _cells(row)))
    file = StringIO()
    Console(file=file, width=WIDTH, highlight=False, markup=False, soft_wrap=True).print(table)
    yield from (line.rstrip() for line in file.getvalue().splitlines())


def environment(report: Report, *, commit: bool = True) -> list[str]:
    """Return a line for each of the machine, the versions and the launches."""
    e = report["environment"]
    load = ", ".join(f"{value:.2f}" for value in e["load_average"])
    lines = [
        f"{e['cpu']}, {e['cores']} cores, {e['memory_bytes'] / 2**30:.0f} GiB, "
        f"Linux {e['kernel']}; load average at start {load}; {e['time']}.",
        f"wagma {e['wagma']}{_commit(e) if commit else ''}, Python {e['python']}, "
        f"numpy {e['numpy']}, mpi4py {e['mpi4py']}.",
    ]
    for launch in report["launches"]:
        first = launch["by_rank"][0]
        library = " ".join(first["library"].partition(",")[0].split())
        cores = [rank["affinity"] for rank in launch["by_rank"]]
        where = f"on cores {cores}" if launch["bound"] else "not bound"
        if trips := launch.get("round_trips_ns"):
            where += (
                f", a cache line goes from one to the other and back in {median(trips):.0f} ns "
                f"({min(trips):.0f} to {max(trips):.0f})"
            )
        sizes = ", ".join(dict.fromkeys(size_text(case["bytes"]) for case in launch["cases"]))
        lines.append(
            f"{launch['ranks']} ranks, {where}: {library}, THREAD_"
            f"{first['thread_level'].upper()}{': ' + sizes if sizes else ''}."
        )
    return lines


def _commit(environment: dict[str, Any]) -> str:
    return f" ({environment['commit'] or 'no repository'})"
