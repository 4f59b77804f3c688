"""The results as a table: of each algorithm the mean of its seeds, and their spread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median, stdev
from textwrap import fill
from typing import Any

from wagma.launch import tables

WIDTH = 100  # characters of a line

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Column:
    """One figure of every run; None where there is none."""

    title: str
    value: Callable[[Run], float | None]
    digits: int


def _columns(result: dict[str, Any]) -> list[_Column]:
    measures, target = result["measures"], result["settings"]["target"]
    scale, unit = (100, " %") if measures["in_percent"] else (1, "")
    return [
        _Column("samples/s", lambda run: run["throughput"], 1),
        _Column(
            "of the bound, %",
            lambda run: (
                run["ideal_throughput"] and 100 * run["throughput"] / run["ideal_throughput"]
            ),
            1,
        ),
        _Column("ms per version", lambda run: 1e3 * run["version_seconds"], 1),
        _Column(
            "gradients, %",
            lambda run: 100 * fmean(run["steps_per_rank"]) / result["settings"]["steps"],
            0,
        ),
        _Column("step p50, ms", lambda run: 1e3 * run["step_time_p50"], 1),
        _Column("step p90, ms", lambda run: 1e3 * run["step_time_p90"], 1),
        _Column("waited per rank, s", lambda run: run["waited_seconds"], 2),
        _Column("late, %", lambda run: 100 * run["late_share"], 1),
        _Column("staleness", lambda run: run["staleness_mean"], 2),
        _Column("communication, ms", lambda run: _times(1e3, run["communication_seconds"]), 2),
        _Column("consensus distance", lambda run: run["consensus_distance"], 4),
        _Column(
            f"{measures['name']}{unit.replace(' ', ', ')}", lambda run: scale * run["accuracy"], 1
        ),
        _Column(f"s to {scale * target:g}{unit}", lambda run: run["time_to_target"], 2),
        *(_STOPPING if any(run.get("dropping") for run in result["runs"]) else ()),
    ]


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _dropping(title: str, name: str, factor: float, digits: int) -> _Column:
    return _Column(title, lambda run: _times(factor, (run.get("dropping") or {}).get(name)), digits)


# Columns for algorithms that stop at a threshold.
_STOPPING = (
    _dropping("dropped, %", "drop_rate", 100, 1),
    _dropping("expected to drop, %", "expected_drop_rate", 100, 1),
    _dropping("threshold, ms", "threshold", 1e3, 1),
    _dropping("speed-up", "measured_speedup", 1, 3),
    _dropping("expected speed-up", "expected_speedup", 1, 3),
)


def by_algorithm(runs: list[Run]) -> dict[str, list[Run]]:
    """Return the runs of each algorithm, by its label, in the order of the first ones."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run["label"], []).append(run)
    return found


# What only the table of a terminal has.
_MORE = (
    _Column("step on time p50, ms", lambda run: _times(1e3, run.get("on_time_step_p50")), 1),
    _Column("step on time p90, ms", lambda run: _times(1e3, run.get("on_time_step_p90")), 1),
    _Column("all steps, s", lambda run: run["wall_seconds"], 2),
)


def text(result: dict[str, Any], *, per_seed: bool = False) -> str:
    """Return the table for a terminal, and what has to be known beside it.

    `per_seed` gives a column for each seed, not their means.
    """
    notes = "".join(f"{fill(note, WIDTH)}\n" for note in _notes(result, per_seed))
    return f"{rows(result, per_seed=per_seed)}\n{notes}"


def rows(result: dict[str, Any], titles: Sequence[str] = (), *, per_seed: bool = False) -> str:
    """Return a line for each figure and a column for each algorithm, below each other if too wide.

    `titles` tell how those of the figures begin, in order; empty: all. `per_seed`: as for `text`.
    """
    head, *columns = _rows(result, per_seed, [*_columns(result), *_MORE])
    places = range(1, len(head))
    begun = [[place for place in places if head[place].startswith(title)] for title in titles]
    wanted = [0, *(chain.from_iterable(begun) if titles else places)]
    head = ["" if place == 0 else head[place] for place in wanted]
    blocks: list[list[list[str]]] = []
    used = WIDTH
    for column in columns:
        cells = [column[place] for place in wanted]
        width = 2 + max(map(len, cells))
        if used + width > WIDTH:
            blocks.append([head])
            used = max(map(len, head))
        blocks[-1].append(cells)
        used += width
    return "\n".join(tables.aligned(list(zip(*block, strict=True))) for block in blocks)


def markdown(result: dict[str, Any], *, per_seed: bool = False) -> str:
    """Return the table in Markdown, under lines with the place, the time and the warnings."""
    table = tables.markdown(_rows(result, per_seed, _columns(result)))
    above = [_where(result), *result["environment"]["warnings"]]
    if result["interrupted"]:
        above.append("Interrupted: it is not all that was asked for.")
    quoted = "\n>\n".join(f"> {text}" for text in above)  # a paragraph each
    return f"{quoted}\n\n{table}"


def _rows(result: dict[str, Any], per_seed: bool, columns: Sequence[_Column]) -> list[list[str]]:
    """Return titles, and the cells of each algorithm."""
    lines = by_algorithm(result["runs"])
    if per_seed:
        lines = {
            f"{label}, seed {run['seed']}": [run] for label, runs in lines.items() for run in runs
        }
    return [
        ["algorithm", *(column.title for column in columns)],
        *(
            [label, *(_cell([c.value(run) for run in runs], c.digits) for c in columns)]
            for label, runs in lines.items()
        ),
    ]


def _where(result: dict[str, Any]) -> str:
    settings, environment = result["settings"], result["environment"]
    parameters = settings["parameters"]
    padded = "" if parameters is None else f", padded to {parameters:,} parameters"
    behind = ""
    if settings["compute"] is not None:
        longest = 100 * max(run["behind_share"] for run in result["runs"])
        behind = (
            f" {1e3 * settings['compute']:g} ms per step{_split(settings)}, emulated; at most "
            f"{longest:.1f} % of an algorithm's gradients took longer."
        )
    load = ", ".join(f"{each:.2f}" for each in environment["load_average"])
    return (
        f"{settings['task']}{padded}, {settings['steps']} versions, {environment['ranks']} ranks, "
        f"{result['imbalance']}; tau {settings['sync_period']}.{behind} "
        f"wagma {environment.get('commit') or 'installed'}, "
        f"{environment['mpi'].get('library', 'MPI')}; load average at start {load}; "
        f"{environment['time']}."
    )


def _split(settings: dict[str, Any]) -> str:
    parts = settings.get("micro_batches", 1)
    return f" of {parts} micro-batches" if parts > 1 else ""


def _cell(values: list[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {stdev(known):,.{digits}f}" if len(known) > 1 else ""
    missing = f" ({len(known)} of {len(values)})" if len(known) < len(values) else ""
    return f"{fmean(known):,.{digits}f}{spread}{missing}"


def _notes(result: dict[str, Any], per_seed: bool) -> list[str]:
    settings = result["settings"]
    notes = [
        "The bound: no communication, only the waiting of this algorithm for the recorded "
        "computing and delays. Consensus distance: of the ranks' models before every "
        f"{settings['sync_period']}th version is averaged. Communication: of calls that waited "
        "for nobody."
    ]
    if any(run.get("dropping") for run in result["runs"]):
        notes.append(
            "Dropped: of all micro-batches, or local steps, those of the calibration included. "
            "Speed-up: of what is computed per second, over the calibration's steps."
        )
    if len(settings["seeds"]) > 1 and not per_seed:
        notes.append(f"Mean ± standard deviation of {len(settings['seeds'])} seeds.")
    notes += _ratios(result["runs"])
    notes += result["environment"]["warnings"]
    behind = max((run["behind_share"] for run in result["runs"]), default=0.0)
    if settings["compute"] is not None and behind > 0:
        notes.append(
            f"gradients took longer than the emulated time in up to {100 * behind:.1f} % of the "
            "steps: these are slower than they should be; ask for a longer --compute"
        )
    if unknown := sorted({run["label"] for run in result["runs"] if not run["ideal_throughput"]}):
        notes.append(f"Bound unknown: {', '.join(unknown)}.")
    return notes


def _ratios(runs: list[Run]) -> list[str]:
    """Compare the throughputs of each seed: what else the machine did then slowed all of them."""
    first, *others = by_algorithm(runs).items()
    reference = {run["seed"]: run["throughput"] for run in first[1]}
    said = []
    for label, each in others:
        ratios = [
            run["throughput"] / reference[run["seed"]] for run in each if run["seed"] in reference
        ]
        if len(ratios) > 1:
            said.append(f"{label} {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    if not said:
        return []
    return [
        f"Throughput by that of {first[0]} with the same seed, median (range): {', '.join(said)}."
    ]


def line(settings: Any, run: Run) -> str:
    """Return what is told of a training as soon as it is done."""
    seed = f", seed {run['seed']}" if len(settings.seeds) > 1 else ""
    return (
        f"{run['label']}{seed}: {settings.steps} versions in {run['wall_seconds']:.1f} s, "
        f"{run['throughput']:.0f} samples/s"
    )
