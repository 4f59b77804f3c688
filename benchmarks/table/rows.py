"""The rows of the table, from the raw samples of a report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import alone_rows, call_rows, mpi_rows, posted_rows, scenario_rows
from .plan import LARGE, ROWS
from .ratio_rows import arrival, large, small
from .row import Report, Row

__all__ = ["assemble", "failures"]

Maker = Callable[[Report], Iterator[Row]]

MAKERS: dict[str, Maker] = {
    **{group: large(group) for group in LARGE},
    "small": small,
    "cost": call_rows.cost,
    "arrival": arrival,
    "grace": scenario_rows.grace,
    "straggler": scenario_rows.straggler,
    "iallreduce": posted_rows.iallreduce,
    "overlap": posted_rows.overlap,
    "k-of-p": scenario_rows.k_of_p,
    "mpi": mpi_rows.allreduce,
    "mpi-groups": mpi_rows.groups,
    "mpi-straggler": mpi_rows.straggler,
    "mpi-idle": mpi_rows.idle,
    "passive": alone_rows.passive,
    "memory": alone_rows.memory,
    "binding": alone_rows.binding,
}


def assemble(report: Report) -> list[Row]:
    """All rows for which there are samples, in the order of ROWS."""
    return [row for group in ROWS if group in report["rows"] for row in MAKERS[group](report)]


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
