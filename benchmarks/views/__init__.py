"""What a benchmark prints, in the form that was asked for. Pure: texts are returned."""

from __future__ import annotations

from typing import Any, Protocol

from ..samples import Point, Report
from ..settings import Settings
from .osu import Osu

__all__ = ["View", "view"]


class View(Protocol):
    """Texts for standard output, with their line ends; "" where there is nothing to say."""

    def header(self, environment: dict[str, Any]) -> str:
        """Before the first point."""

    def row(self, point: Point) -> str:
        """As soon as a point was measured; one line or several."""

    def footer(self, report: Report) -> str:
        """After the last point, also of a run that was interrupted."""


def view(settings: Settings) -> View:
    """The view of `settings.format` for `settings.kind`."""
    return Osu(settings)
