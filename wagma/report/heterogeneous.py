"""What the benchmark of heterogeneous clusters measured, as a table of all methods. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from wagma.units import plural

NEAR = 0.03  # so close to the best is called as good
FROM = 3  # the first epoch of which a prediction counts, and which is no learning
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


def _rows(result: Mapping[str, Any]) -> list[Row]:
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
        (f"error of predictions from epoch {FROM}, median, %", _of("prediction_error_median", 100)),
        ("  largest, %", _of("prediction_error_worst", 100)),
        (f"epochs to within {NEAR:.0%} of the best{after}", _reached),
        ("share of the fastest rank, %", _of("fastest_share", 100)),
        ("share of the slowest rank, %", _of("slowest_share", 100)),
        ("planning, slowest rank, ms per plan", _of("planning", 1e3, 2)),
        ("  CPU, busiest rank, ms per plan", _of("planning_cpu", 1e3, 2)),
        ("  of an epoch, %", _of("planning_share", 100, 2)),
        ("speed-up against the even split", _of("speedup", 1, 2)),
    ]


def cells(result: Mapping[str, Any]) -> list[list[str]]:
    """Return the table of a document with runs: a header, and a line for each figure."""
    head = ["", *(LABELS[run["method"]] for run in result["runs"])]
    rows = ((title, *(cell(run) or "-" for run in result["runs"])) for title, cell in _rows(result))
    return [head, *map(list, rows)]


def notes(result: Mapping[str, Any]) -> list[str]:
    """Return what has to be known beside the table."""
    said = [
        "Steps: the median of an epoch. Planning: replan(), with the exchange of what the ranks "
        "have measured."
    ]
    if result["settings"]["batch_range"]:
        said.append(
            "Best and speed-up: by the time for the same progress, throughput times the efficiency "
            f"of the total batch, at a noise scale of {result['noise_scale']:,g} samples."
        )
    return said


def announced(result: Mapping[str, Any]) -> str:
    """Return what is measured, in words; `result` needs no runs yet."""
    settings, ranks = result["settings"], len(result["relative_times"])
    some = "" if ranks == result["nodes"] else f" of {result['nodes']}, chosen evenly"
    return (
        f"cluster {settings['cluster']}: {plural(ranks, 'node')}{some}, times per sample "
        f"{', '.join(f'{one:.3g}' for one in result['relative_times'])}; "
        f"{plural(settings['epochs'], 'epoch')} of {plural(settings['steps'], 'step')}, the best "
        f"of {1e3 * settings['step_time']:g} ms with {result['smallest']} samples"
    )
