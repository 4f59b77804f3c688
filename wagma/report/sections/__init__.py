"""Sections of the report, each a function from what was found to a `Section`, or to None."""

from __future__ import annotations

from collections.abc import Callable

from wagma.report.document import Section
from wagma.report.records import Found
from wagma.report.sections.delays import delays
from wagma.report.sections.environment import environment
from wagma.report.sections.files import files
from wagma.report.sections.goals import goals
from wagma.report.sections.latency import latency, ratios
from wagma.report.sections.learning import accuracy, staleness
from wagma.report.sections.overlap import overlap
from wagma.report.sections.throughput import throughput
from wagma.report.sections.timeline import timeline
from wagma.report.sections.waiting import waiting

__all__ = ["sections"]

_ALL: tuple[Callable[[Found], Section | None], ...] = (
    throughput,
    accuracy,
    staleness,
    waiting,
    timeline,
    latency,
    ratios,
    delays,
    overlap,
    goals,
    environment,
    files,
)


def sections(found: Found) -> list[Section]:
    """Those for which there is something."""
    return [section for make in _ALL if (section := make(found)) is not None]
