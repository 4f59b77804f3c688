"""Prints a report, for a terminal or as Markdown."""

from __future__ import annotations

from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from row import Row, size_text

__all__ = ["show"]

WIDTH = 1000  # no row is cut or wrapped; tables are only as wide as their longest row


def show(report: dict[str, Any], rows: list[Row], file: TextIO, *, markdown: bool) -> None:
    """The environment, the table and what was left out."""
    console = Console(file=file, width=WIDTH, highlight=False, markup=False, soft_wrap=True)
    for line in _environment(report):
        console.print(line)
    console.print()
    table = Table(box=box.MARKDOWN if markdown else box.SIMPLE_HEAD, show_edge=markdown)
    for column in ("what", "ranks", "goal", "measured", "", "median [p10, p90]"):
        table.add_column(column, no_wrap=True, justify="right" if column == "ranks" else "left")
    for row in rows:
        cells = (row.what, str(row.ranks), row.goal, row.measured, row.verdict, row.details)
        table.add_row(*(escape(cell) for cell in cells))
    console.print(table)
    for reason in report["left_out"]:
        console.print(f"left out: {reason}")


def _environment(report: dict[str, Any]) -> list[str]:
    e = report["environment"]
    load = ", ".join(f"{value:.2f}" for value in e["load_average"])
    lines = [
        f"{e['cpu']}, {e['cores']} cores, {e['memory_bytes'] / 2**30:.0f} GiB, "
        f"Linux {e['kernel']}; load average at start {load}; {e['time']}.",
        f"wagma {e['wagma']} ({e['commit'] or 'no repository'}), Python {e['python']}, "
        f"numpy {e['numpy']}, mpi4py {e['mpi4py']}.",
    ]
    for launch in report["launches"]:
        first = launch["by_rank"][0]
        library = " ".join(first["library"].partition(",")[0].split())
        cores = [rank["affinity"] for rank in launch["by_rank"]]
        where = f"on cores {cores}" if launch["bound"] else "not bound"
        sizes = ", ".join(size_text(case["bytes"]) for case in launch["cases"])
        lines.append(
            f"{launch['ranks']} ranks, {where}: {library}, THREAD_"
            f"{first['thread_level'].upper()}{': ' + sizes if sizes else ''}."
        )
    return lines
