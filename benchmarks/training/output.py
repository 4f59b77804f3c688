"""What becomes of results: a table, a file, pictures; also of results that were written before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from wagma.launch import files

from .document import write

__all__ = ["check_writable", "put", "stored"]

Result = dict[str, Any]


def check_writable(json: str | None, folder: str | None, picture: str | None) -> None:
    """Whether results can be written; nothing stays behind.

    Args:
        json: file for the document, or None.
        folder: for the pictures, or None.
        picture: file for the picture of all, or None.

    Raises:
        ValueError: a file cannot be written.
    """
    if json is not None:
        _try("--json", Path(json))
    if picture is not None:
        _try("--picture", Path(picture))
    if folder is not None:
        from . import plots  # matplotlib takes half a second of every rank's start

        for name in plots.NAMES:
            _try("--plots", Path(folder) / name)


def _try(option: str, file: Path) -> None:
    """The run may fail, or end before it has results: what was not there is removed again."""
    new: list[Path] = []  # the innermost folder first
    try:
        new += [folder for folder in file.parents if not folder.exists()]
        file.parent.mkdir(parents=True, exist_ok=True)
        files.check_writable(file)
    except OSError as error:
        raise ValueError(f"argument {option}: cannot write {file}: {error.strerror}") from None
    finally:
        for folder in new:
            with suppress(OSError):  # it was not made, or somebody else has put something there
                folder.rmdir()


def put(
    result: Result,
    text: Callable[[Result], str],
    json: str | None,
    folder: str | None,
    picture: str | None,
) -> None:
    """Prints and writes; that not everything was measured is told on standard error.

    Args:
        result: of `document.document`, with at least one run.
        text: makes the table.
        json: file for the document, or None.
        folder: for the pictures, or None.
        picture: file for the picture of all, or None.
    """
    sys.stdout.write(text(result))
    if json is not None:
        write(Path(json), result)
        sys.stdout.write(f"Results: {json}\n")
    if folder is not None:
        from . import plots

        for path in plots.draw(result, Path(folder)):
            sys.stdout.write(f"Picture: {path}\n")
    if picture is not None:
        from . import plots

        Path(picture).parent.mkdir(parents=True, exist_ok=True)
        plots.draw_overview(result, Path(picture))
        sys.stdout.write(f"Picture: {picture}\n")
    sys.stdout.flush()
    if result["interrupted"]:
        sys.stderr.write("interrupted: what is above is not all that was asked for\n")
    sys.stderr.flush()


def stored(file: Path) -> Result:
    """The document in a file of `--json`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none, or has no runs.
    """
    from wagma.report.formats import FormatError, check_schema, loads

    try:
        result: Result = loads(file.read_bytes())
        check_schema(result, "wagma.report", "training.schema.json")
    except FormatError as error:
        raise ValueError(str(error)) from None
    if not result["runs"]:
        raise ValueError("it has no runs")
    return result
