"""Sections of the report, each a function from what was found to a `Section`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from wagma.report.document import Part, Section
from wagma.report.records import Found
from wagma.report.sections.delays import delays
from wagma.report.sections.latency import latency, ratios
from wagma.report.sections.learning import accuracy, staleness, waiting
from wagma.report.sections.overlap import overlap
from wagma.report.sections.simulated import simulated
from wagma.report.sections.tables import divisions, environment, files, goals
from wagma.report.sections.throughput import throughput
from wagma.report.sections.timeline import timeline

__all__ = ["sections"]

_ALL: tuple[Callable[[Found], Section], ...] = (
    throughput,
    accuracy,
    staleness,
    waiting,
    divisions,
    timeline,
    latency,
    ratios,
    delays,
    overlap,
    simulated,
    goals,
    environment,
    files,
)


def sections(found: Found) -> list[Section]:
    """Return the sections that have content; number their plots."""
    counts: Counter[str] = Counter()

    def numbered(part: Part) -> Part:
        if part.plot is None:
            return part
        counts[part.plot.name] += 1
        name = f"{part.plot.name}-{counts[part.plot.name]}"
        return replace(part, plot=replace(part.plot, name=name))

    made = [make(found) for make in _ALL]
    return [replace(each, parts=tuple(map(numbered, each.parts))) for each in made if each.parts]
