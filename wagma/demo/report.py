"""The demo's table, computed from its JSON record and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wagma.demo.settings import ALGORITHMS

__all__ = ["Row", "Table", "mean_model_curve", "render", "table", "time_to_accuracy"]

Floats = npt.NDArray[np.float64]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a value, or several, per algorithm; none where there is nothing."""

    label: str
    values: tuple[tuple[float, ...], ...]
    digits: int


@dataclass(frozen=True, slots=True)
class Table:
    """What the demo reports; `algorithms` are the columns."""

    algorithms: tuple[str, ...]
    rows: tuple[Row, ...]


def mean_model_curve(run: Record) -> tuple[Floats, Floats]:
    """Seconds and test accuracies of the averaged models of a run.

    The average of the models after n steps exists when the last rank has made its n-th.
    """
    taken = np.array([rank["snapshot_seconds"] for rank in run["ranks"]], dtype=float)
    return taken.max(axis=0), np.array(run["snapshot_accuracies"], dtype=float)


def time_to_accuracy(run: Record, target: float) -> float | None:
    """Seconds until the averaged model classifies `target` of the tests rightly; None: never."""
    seconds, accuracies = mean_model_curve(run)
    reached = np.flatnonzero(accuracies >= target)
    return float(seconds[reached[0]]) if reached.size else None


def table(record: Record) -> Table:
    """Computes the table of a demo.

    Args:
        record: what ``python -m wagma demo --json FILE`` writes.

    Times of "other steps" leave out every step in which WAGMA synchronises, for AllreduceSGD (all
    of whose steps wait for everybody) the same steps. "Ranks on time" are those that were not
    themselves delayed in a step: what they take longer than without delays, others cause.
    """
    settings = record["settings"]
    columns = [_column(run, settings) for run in record["runs"]]
    rows = tuple(
        Row(label, tuple(column[label] for column in columns), digits)
        for label, digits in _labels(settings)
    )
    return Table(tuple(ALGORITHMS[run["algorithm"]] for run in record["runs"]), rows)


def _labels(settings: Record) -> list[tuple[str, int]]:
    return [
        ("throughput, samples/s", 0),
        ("all steps: p50, p90, ms", 1),
        ("other steps: p50, p90, ms", 1),
        ("other steps, ranks on time: p50, p90, ms", 1),
        ("waited per rank, s", 2),
        ("late contributions, %", 1),
        ("test accuracy of the averaged model, %", 1),
        (_time_label(settings), 2),
        ("whole training, s", 2),
    ]


def _time_label(settings: Record) -> str:
    return f"time to {100 * settings['target']:g} % accuracy, s"


def _column(run: Record, settings: Record) -> dict[str, tuple[float, ...]]:
    ranks = run["ranks"]
    steps = np.array([rank["step_seconds"] for rank in ranks], dtype=float)
    delayed = np.array([rank["delayed"] for rank in ranks], dtype=bool)
    others = (np.arange(steps.shape[1]) + 1) % settings["sync_period"] != 0
    whole = max(rank["end_seconds"] for rank in ranks)
    reached = time_to_accuracy(run, settings["target"])
    return {
        "throughput, samples/s": (steps.size * settings["batch"] / whole,),
        "all steps: p50, p90, ms": _percentiles(steps),
        "other steps: p50, p90, ms": _percentiles(steps[:, others]),
        "other steps, ranks on time: p50, p90, ms": _percentiles(
            steps[:, others][~delayed[:, others]]
        ),
        "waited per rank, s": tuple(sum(rank["waited_seconds"]) for rank in ranks),
        "late contributions, %": (100 * float(np.mean([rank["late"] for rank in ranks])),),
        "test accuracy of the averaged model, %": (100 * run["final_accuracy"],),
        _time_label(settings): () if reached is None else (reached,),
        "whole training, s": (whole,),
    }


def _percentiles(seconds: Floats) -> tuple[float, ...]:
    if not seconds.size:
        return ()
    return tuple(float(value) for value in 1e3 * np.percentile(seconds, [50, 90]))


def render(result: Table) -> str:
    """The table as text."""
    cells = [["", *result.algorithms]]
    cells += [
        [row.label, *(_format(values, row.digits) for values in row.values)] for row in result.rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [_line(line, widths) for line in cells]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])


def _format(values: Sequence[float], digits: int) -> str:
    return "  ".join(f"{value:,.{digits}f}" for value in values) if values else "-"
