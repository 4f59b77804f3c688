"""How many samples per second algorithms train, and all their figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from wagma.report.document import Cell, Part, Plot, Row, Section, Table, table
from wagma.report.records import Found, Training
from wagma.report.sections.axes import legend, palette, plain, short
from wagma.report.sections.words import figure, times
from wagma.report.style import INK, Looks
from wagma.units import NONE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINE = "allreduce"  # with which the others are compared


def mean_throughput(training: Training, algorithm: str) -> float:
    """Return the samples per second: the mean over the seeds."""
    runs = training.of(algorithm)
    return sum(run.throughput for run in runs) / len(runs)


def throughput(found: Found) -> Section:
    """Show the throughput per algorithm, against the ideal."""
    parts = [_throughput(each, palette(found)) for each in found.trainings]
    text = (
        "Samples per second of all ranks together, the mean over the seeds with the smallest and "
        "the largest. The ideal is what the same delays would allow if communication took no time.",
    )
    return Section("throughput", "Throughput of training", tuple(parts), text)


def _throughput(training: Training, looked: Looks) -> Part:
    algorithms = training.algorithms

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        ideals = []
        for place, algorithm in enumerate(reversed(algorithms)):
            values = np.array([run.throughput for run in training.of(algorithm)])
            mean = values.mean()
            axes.barh(place, mean, 0.62, color=looked[algorithm].colour)
            if len(values) > 1:
                spread = [[mean - values.min()], [values.max() - mean]]
                axes.errorbar(mean, place, xerr=spread, ecolor=INK, elinewidth=1, capsize=3)
            ideals += [(place, ideal) for ideal in _ideals(training, algorithm)]
        if ideals:
            axes.plot(
                [ideal for _, ideal in ideals],
                [place for place, _ in ideals],
                "|",
                color=INK,
                markersize=15,
                markeredgewidth=1.6,
                label="ideal, without communication",
            )
        names = [short(training.label(name)) for name in reversed(algorithms)]
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("samples/s, all ranks")
        plain(axes, "x")
        legend(axes)

    means = ", ".join(
        f"{training.label(name)} {mean_throughput(training, name):,.0f}" for name in algorithms
    )
    return Part(
        training.what,
        ("It was interrupted: runs are missing.",) if training.interrupted else (),
        Plot(
            "throughput",
            f"Throughput in samples per second; {training.what}: {means}",
            draw,
            height=1.4 + 0.34 * len(algorithms),
        ),
        (_summary(training), _details(training)),
        (training.path,),
    )


# Figures of algorithms that stop at a threshold: title, form, entry of `Run.dropping`, scale.
_DROPPING = (
    ("dropped", "{:.1f}%", "drop_rate", 100),
    ("threshold", "{:.1f} ms", "threshold", 1e3),
    ("speed-up of dropping", "{:.3f}", "measured_speedup", 1.0),
    ("expected", "{:.3f}", "expected_speedup", 1.0),
)


def _ideals(training: Training, algorithm: str) -> list[float]:
    """Return the mean over the seeds in a list; empty: no seed has an ideal."""
    known = [run.ideal_throughput for run in training.of(algorithm)]
    values = [value for value in known if value is not None]
    return [sum(values) / len(values)] if values else []


def _summary(training: Training) -> Table:
    names = training.algorithms
    baseline = BASELINE if BASELINE in names else names[0]
    theirs = mean_throughput(training, baseline)
    rows: list[Row] = []
    for name in names:
        runs, ideals = training.of(name), _ideals(training, name)
        mean = mean_throughput(training, name)
        rows.append(
            (
                training.label(name),
                figure([run.throughput for run in runs], "{:,.0f}".format),
                times(mean / theirs) if theirs > 0 else NONE,
                f"{mean / ideals[0]:.0%}" if ideals and ideals[0] > 0 else NONE,
            )
        )
    return table(
        f"Throughput; {training.what}",
        ("algorithm", "samples/s", f"/ {training.label(baseline)}", "of ideal"),
        rows,
    )


def _details(training: Training) -> Table:
    """Return all figures of all algorithms: means over the seeds."""

    def of(values: Iterable[float | None], form: str, scale: float = 1.0) -> Cell:
        return figure([scale * value for value in values if value is not None], form.format)

    dropping = _DROPPING if any(run.dropping for run in training.runs) else ()
    rows: list[Row] = []
    for name in training.algorithms:
        runs = training.of(name)
        reached = sum(run.time_to_target is not None for run in runs)
        time = of([run.time_to_target for run in runs], "{:.2f} s")
        missed = f"{reached} of {len(runs)} seeds" if 0 < reached < len(runs) else ""
        rows.append(
            (
                training.label(name),
                str(len(runs)),
                of([run.step_time_p50 for run in runs], "{:.1f} ms", 1e3),
                of([run.step_time_p90 for run in runs], "{:.1f} ms", 1e3),
                of([float(np.mean(run.waited_seconds_per_rank)) for run in runs], "{:.2f} s"),
                of([run.late_share for run in runs], "{:.1f}%", 100),
                of([run.staleness_mean for run in runs], "{:.2f}"),
                of([run.consensus_distance for run in runs], "{:.3g}"),
                figure([run.accuracy for run in runs], training.measured),
                Cell(time.text, "; ".join(filter(None, (time.small, missed)))),
                *(
                    of([run.dropping.get(key) for run in runs], form, scale)
                    for _, form, key, scale in dropping
                ),
            )
        )
    head = (
        *("algorithm", "seeds", "step, median", "step, p90", "waited per rank", "late"),
        *("staleness", "consensus distance", training.measure),
        f"time to {training.measured(training.target)}",
        *(each[0] for each in dropping),
    )
    return table(f"Every figure; {training.what}", head, rows)
