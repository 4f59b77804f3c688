"""What becomes of results: a document, a table, pictures; also of results that were written before.

The document is JSON, as training.schema.json says.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wagma.launch import files

from .settings import Settings

if TYPE_CHECKING:
    from wagma.inject import Injector

Result = dict[str, Any]
Out = Settings | Namespace


def document(
    settings: Settings,
    environment: dict[str, Any],
    imbalance: Injector,
    measures: tuple[str, bool],
    runs: list[dict[str, Any]],
    interrupted: bool,
) -> dict[str, Any]:
    """Return what is reported.

    `measures` is what the task's measure is called, and whether it is a share. The imbalance, whose
    description is reported, is that of the first seed.
    """
    return {
        "benchmark": "training",
        "environment": environment,
        "settings": {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(settings).items()
        },
        "imbalance": imbalance.describe(),
        "measures": {"name": measures[0], "in_percent": measures[1]},
        "interrupted": interrupted,
        "runs": runs,
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Write the document, and make its folder; OSError if that cannot be done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(path, json.dumps(result, allow_nan=False) + "\n")


def check_writable(out: Out) -> None:
    """Check that results can be written, and leave nothing behind.

    Args:
        out: says where: the file `json`, the folder `plots`, the file `picture`, each may be None.

    Raises:
        ValueError: a file cannot be written.
    """
    if out.json is not None:
        check_new("--json", Path(out.json))
    if out.picture is not None:
        check_new("--picture", Path(out.picture))
    if out.plots is not None:
        from . import plots  # matplotlib takes half a second of every rank's start

        for name in plots.NAMES:
            check_new("--plots", Path(out.plots) / name)


def check_new(option: str, file: Path) -> None:
    """Check that an option's file can be written, in folders that are made.

    The run may fail, or end before it has results: what was not there is removed again.

    Raises:
        ValueError: it cannot.
    """
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
    shown: str, result: Result, file: str | Path | None, draw: Callable[[], list[Path]]
) -> None:
    """Print the table that is `shown`, write the document, and draw.

    Standard error says if not everything was measured.
    """
    sys.stdout.write(shown)
    if file is not None:
        write(Path(file), result)
        sys.stdout.write(f"Results: {file}\n")
    for path in draw():
        sys.stdout.write(f"Picture: {path}\n")
    sys.stdout.flush()
    if result["interrupted"]:
        sys.stderr.write("interrupted: what is above is not all that was asked for\n")
    sys.stderr.flush()


def put_training(result: Result, text: Callable[[Result], str], out: Out) -> None:
    """Put a document with runs where `check_writable` was told; `text` makes the table."""

    def draw() -> list[Path]:
        if out.plots is None and out.picture is None:
            return []
        from . import plots

        paths = [] if out.plots is None else plots.draw(result, Path(out.plots))
        if out.picture is not None:
            paths.append(plots.draw_overview(result, Path(out.picture)))
        return paths

    put(text(result), result, out.json, draw)


def stored(file: Path) -> Result:
    """Return the document in a file of `--json`.

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
