"""The results as a table: a line for each figure, a column for each method. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from wagma.units import plural

from .. import tables
from .figures import FROM, NEAR

if TYPE_CHECKING:
    from .train import Epoch

WIDTH = 100  # characters of a line
LABELS = {"even": "even split", "lb-bsp": "LB-BSP", "adaptdl": "AdaptDL", "cannikin": "Cannikin"}

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Row:
    """One figure of every method; "-" where there is none."""

    title: str
    cell: Callable[[Run], str | None]


def _number(value: float | None, factor: float, digits: int) -> str | None:
    return None if value is None else f"{factor * value:,.{digits}f}"


def _of(name: str, factor: float = 1.0, digits: int = 1) -> Callable[[Run], str | None]:
    return lambda run: _number(run[name], factor, digits)


def _epoch(place: int, name: str, factor: float, digits: int) -> Callable[[Run], str | None]:
    return lambda run: _number(run["epochs"][place][name], factor, digits)


def _reached(run: Run) -> str:
    return ", ".join("-" if one is None else str(one) for one in run["reached"])


def _slowed(run: Run) -> str:
    return ", ".join(f"{1e3 * one:,.1f}" for one in run["seconds_slowed"])


def _rows(result: dict[str, Any]) -> list[_Row]:
    phases = len(result["runs"][0]["reached"])
    after = "" if phases == 1 else "; after each slowdown"
    since = "" if phases == 1 else " after the last slowdown"
    slowed = [] if phases == 1 else [_Row("step, first epoch of each slowdown, ms", _slowed)]
    batches = result["settings"]["batch_range"]
    chosen = [_Row("total batch, last epoch", _epoch(-1, "total_batch", 1, 0))] if batches else []
    return [
        _Row("step, first epoch, ms", _epoch(0, "seconds", 1e3, 1)),
        *slowed,
        _Row(f"step, best epoch{since}, ms", _of("seconds_best", 1e3)),
        _Row(f"step, median from epoch {FROM}{since}, ms", _of("seconds_settled", 1e3)),
        _Row("step, last epoch, ms", _epoch(-1, "seconds", 1e3, 1)),
        _Row("best division without communication, ms", _epoch(-1, "ideal", 1e3, 1)),
        *chosen,
        _Row("predicted for the last epoch, ms", _epoch(-1, "predicted", 1e3, 1)),
        _Row(f"error of predictions from epoch {FROM}, median, %", _median_error),
        _Row("  largest, %", _of("prediction_error_worst", 100)),
        _Row(f"epochs to within {NEAR:.0%} of the best{after}", _reached),
        _Row("share of the fastest rank, %", _of("fastest_share", 100)),
        _Row("share of the slowest rank, %", _of("slowest_share", 100)),
        _Row("planning, slowest rank, ms per plan", _of("planning", 1e3, 2)),
        _Row("  CPU, busiest rank, ms per plan", _of("planning_cpu", 1e3, 2)),
        _Row("  of an epoch, %", _of("planning_share", 100, 2)),
        _Row("speed-up against the even split", _of("speedup", 1, 2)),
    ]


_median_error = _of("prediction_error_median", 100)


def _cells(result: dict[str, Any]) -> list[list[str]]:
    head = ["", *(LABELS[run["method"]] for run in result["runs"])]
    rows = ((row.title, *(row.cell(run) or "-" for run in result["runs"])) for row in _rows(result))
    return [head, *map(list, rows)]


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal, and what has to be known beside it.

    Args:
        result: the document, with at least one run.
    """
    notes = [fill(note, WIDTH) for note in _notes(result)]
    return tables.aligned(_cells(result)) + "".join(f"{line}\n" for line in ["", *notes])


def markdown(result: dict[str, Any]) -> str:
    """Return the table as documents have it."""
    return tables.markdown([[row[0].strip(), *row[1:]] for row in _cells(result)])


def _notes(result: dict[str, Any]) -> list[str]:
    notes = [
        "Steps: the median of an epoch. Planning: replan(), with the exchange of what the ranks "
        "have measured."
    ]
    if result["settings"]["batch_range"]:
        notes.append(
            "Best and speed-up: by the time for the same progress, throughput times the efficiency "
            f"of the total batch, at a noise scale of {result['noise_scale']:,g} samples."
        )
    return [*notes, *result["environment"]["warnings"]]


def announced(result: dict[str, Any]) -> str:
    """Return what is going to be measured; `result` needs no runs yet."""
    settings, ranks = result["settings"], len(result["relative_times"])
    some = "" if ranks == result["nodes"] else f" of {result['nodes']}, chosen evenly"
    return (
        f"cluster {settings['cluster']}: {plural(ranks, 'node')}{some}, times per sample "
        f"{', '.join(f'{one:.3g}' for one in result['relative_times'])}; "
        f"{plural(settings['epochs'], 'epoch')} of {plural(settings['steps'], 'step')}, the best "
        f"of {1e3 * settings['step_time']:g} ms with {result['smallest']} samples"
    )


def line(label: str, epochs: Sequence[Epoch]) -> str:
    """Return what is told of a method as soon as it is done."""
    first, last = (1e3 * epochs[place].seconds for place in (0, -1))
    return f"{label}: {first:.0f} ms per step in the first epoch, {last:.0f} ms in the last"
