"""What a benchmark prints, in the form that was asked for. Pure: texts are returned."""

from collections.abc import Callable
from typing import Any, Protocol

from wagma.report.remarks import remarks

from ..samples import Point, Report
from ..settings import Settings
from .document import Document
from .nccl import Nccl
from .osu import Osu
from .rows import Csv

__all__ = ["View", "remarks", "view"]


class View(Protocol):
    """Texts for standard output, with their line ends; "" where there is nothing to say."""

    def header(self, environment: dict[str, Any]) -> str:
        """Return the text before the first point."""

    def row(self, point: Point) -> str:
        """Return the text of a measured point: one line or several."""

    def footer(self, report: Report) -> str:
        """Return the text after the last point, also of an interrupted run."""


_VIEWS: dict[str, Callable[[Settings], View]] = {
    "osu": Osu,
    "nccl": Nccl,
    "csv": Csv,
    "json": Document,
}


def view(settings: Settings) -> View:
    """Return the view of `settings.format` for `settings.kind`."""
    return _VIEWS[settings.format](settings)
