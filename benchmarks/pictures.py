"""Pictures in the style of a report (`wagma.report.style`), a PNG each."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.style as mpl_style
from matplotlib.figure import Figure

from wagma.launch.files import write_file
from wagma.report.style import RC


@contextmanager
def picture(file: Path, dpi: int, style: dict[str, Any], **options: Any) -> Iterator[Figure]:
    """Give the block a figure to draw, and write it to `file` afterwards.

    Args:
        file: a PNG, whose folder is there.
        dpi: pixels per inch.
        style: of matplotlib, beside that of reports.
        options: of `Figure`.
    """
    with mpl_style.context(["default", {**RC, **style}]):
        figure = Figure(layout="constrained", **options)  # needs no display
        yield figure
        content = io.BytesIO()
        figure.savefig(content, dpi=dpi, format="png")
    write_file(file, content.getvalue())
