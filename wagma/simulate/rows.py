"""Rows of `wagma simulate`: each method with each number of ranks. Pure."""

from collections.abc import Callable, Iterable
from typing import Any

from wagma.launch import tables
from wagma.simulate.engine import simulate
from wagma.simulate.methods import Method
from wagma.simulate.network import Network
from wagma.simulate.result import Simulated
from wagma.simulate.workload import Workload
from wagma.units import NONE, number_text, percent_text

Row = dict[str, Any]
_FIGURES = (
    *("versions_per_second", "throughput", "ideal", "efficiency", "late", "staleness"),
    *("contributors", "dropped", "consensus", "seconds", "note"),
)


def rows(
    methods: Iterable[Method],
    workloads: Iterable[Workload],
    network: Network,
    seed: int,
    advance: Callable[[], None],
    noise_scale: float | None = None,
) -> tuple[list[Row], list[str]]:
    """Simulate each method with each workload.

    Args:
        methods: what is compared.
        workloads: one for each number of ranks.
        network: of the ranks.
        seed: of all draws.
        advance: called after each row.
        noise_scale: of the gradients, in local batches, for their goodput; None: unknown.

    Returns:
        The rows, and a line for each that a method cannot have.
    """
    made, refused = [], []
    chosen = list(methods)
    for workload in workloads:
        for method in chosen:
            try:
                found = simulate(method, workload, network, seed)
            except ValueError as error:
                refused.append(f"{method.name}, {workload.ranks} ranks: {error}")
            else:
                row = _row(method, workload, found)
                if noise_scale is not None:
                    row["goodput"] = found.goodput(noise_scale)
                made.append(row)
            advance()
    return made, refused


def _row(method: Method, workload: Workload, found: Simulated) -> Row:
    figures = {name: getattr(found, name) for name in _FIGURES}
    waited = float(found.waited.mean())
    return {"ranks": workload.ranks, "method": method.name, **figures, "waited_seconds": waited}


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda row: row["method"],
    "ranks": lambda row: f"{row['ranks']:,}",
    "versions/s": lambda row: number_text(row["versions_per_second"]),
    "batches/s": lambda row: number_text(row["throughput"], 4),
    "of the ideal": lambda row: percent_text(row["efficiency"]),
    "late": lambda row: percent_text(row["late"]),
    "waited": lambda row: percent_text(row["waited_seconds"] / row["seconds"]),
    "staleness": lambda row: f"{row['staleness']:.2f}",
    "dropped": lambda row: percent_text(row["dropped"]),
    "consensus": lambda row: NONE if row["consensus"] is None else f"{row['consensus']:.2f}",
}


def text(made: list[Row]) -> str:
    """Return the rows as a table."""
    return tables.aligned(cells(made))


def cells(made: list[Row]) -> list[list[str]]:
    """Return a header, and the cells of the rows."""
    columns = dict(_COLUMNS)
    if all("goodput" in row for row in made):
        columns["goodput"] = lambda row: number_text(row["goodput"], 4)
    return [list(columns), *([cell(row) for cell in columns.values()] for row in made)]
