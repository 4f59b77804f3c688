"""The results as a table: a line for each figure, a column for each method. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from wagma.launch import tables
from wagma.units import plural

from .figures import FROM, NEAR

if TYPE_CHECKING:
    from .train import Epoch

WIDTH = 100  # characters of a line
LABELS = {"even": "even split", "lb-bsp": "LB-BSP", "adaptdl": "AdaptDL", "cannikin": "Cannikin"}

Run = dict[str, Any]


# The title of a figure, and what makes it of a method's run; None where there is none.
Row = tuple[str, Callable[[Run], str | None]]


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


def _rows(result: dict[str, Any]) -> list[Row]:
    phases = len(result["runs"][0]["reached"])
    after = "" if phases == 1 else "; after each slowdown"
    since = "" if phases == 1 else " after the last slowdown"
    slowed = [] if phases == 1 else [("step, first epoch of each slowdown, ms", _slowed)]
    batches = result["settings"]["batch_range"]
    chosen = [("total batch, last epoch", _epoch(-1, "total_batch", 1, 0))] if batches else []
    return [
        ("step, first epoch, ms", _epoch(0, "seconds", 1e3, 1)),
        *slowed,
        (f"step, best epoch{since}, ms", _of("seconds_best", 1e3)),
        (f"step, median from epoch {FROM}{since}, ms", _of("seconds_settled", 1e3)),
        ("step, last epoch, ms", _epoch(-1, "seconds", 1e3, 1)),
        ("best division without communication, ms", _epoch(-1, "ideal", 1e3, 1)),
        *chosen,
        ("predicted for the last epoch, ms", _epoch(-1, "predicted", 1e3, 1)),
        (f"error of predictions from epoch {FROM}, median, %", _median_error),
        ("  largest, %", _of("prediction_error_worst", 100)),
        (f"epochs to within {NEAR:.0%} of the best{after}", _reached),
        ("share of the fastest rank, %", _of("fastest_share", 100)),
        ("share of the slowest rank, %", _of("slowest_share", 100)),
        ("planning, slowest rank, ms per plan", _of("planning", 1e3, 2)),
        ("  CPU, busiest rank, ms per plan", _of("planning_cpu", 1e3, 2)),
        ("  of an epoch, %", _of("planning_share", 100, 2)),
        ("speed-up against the even split", _of("speedup", 1, 2)),
    ]


_median_error = _of("prediction_error_median", 100)


def _cells(result: dict[str, Any]) -> list[list[str]]:
    head = ["", *(LABELS[run["method"]] for run in result["runs"])]
    rows = ((title, *(cell(run) or "-" for run in result["runs"])) for title, cell in _rows(result))
    return [head, *map(list, rows)]


def text(result: dict[str, Any]) -> str:
    """Return the table of a document with runs, and what has to be known beside it."""
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
