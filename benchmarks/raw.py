"""Raw samples in a file of numpy's: --samples FILE.

The file is an .npz. "report" is a text: in JSON, the report without its samples. The samples of
series j of point i are the arrays "i/j/began", "i/j/ended", "i/j/late" and so on: what
`samples.Series` has, [iterations, ranks], times in ns of a clock that all ranks share. `load` gives
the report back.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wagma.launch.files import write_file

from .samples import Checks, Point, Report, Series
from .settings import Settings

__all__ = ["SAMPLES", "load", "pack", "samples_of", "save", "unpack"]

WORDS = ("name", "library", "loop")
SAMPLES = tuple(field.name for field in fields(Series) if field.name not in (*WORDS, "checks"))

Arrays = dict[str, npt.NDArray[Any]]


def samples_of(series: Series) -> Arrays:
    """Return the samples that a series has, by their names."""
    found = {name: getattr(series, name) for name in SAMPLES}
    return {name: each for name, each in found.items() if each is not None}


def save(path: str | Path, report: Report) -> None:
    """Writes the file; OSError if that cannot be done."""
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **pack(report))
    write_file(Path(path), packed.getvalue())


def load(path: str | Path) -> Report:
    """Reads a file that `save` wrote; OSError, ValueError or KeyError if it is none."""
    with np.load(path, allow_pickle=False) as arrays:
        return unpack(arrays)


def pack(report: Report) -> Arrays:
    """The arrays of the file, by their names."""
    arrays: Arrays = {}
    points = []
    for i, point in enumerate(report.points):
        described = []
        for j, series in enumerate(point.series):
            words = {word: getattr(series, word) for word in WORDS}
            described.append(words | {"checks": asdict(series.checks)})
            arrays |= {f"{i}/{j}/{name}": each for name, each in samples_of(series).items()}
        head = {name: getattr(point, name) for name in ("size", "count", "arrival", "amplitude")}
        points.append(head | {"series": described})
    text = {
        "settings": asdict(report.settings),
        "environment": report.environment,
        "ranks": report.ranks,
        "interrupted": report.interrupted,
        "points": points,
    }
    arrays["report"] = np.array(json.dumps(text))
    return arrays


def unpack(arrays: Mapping[str, npt.NDArray[Any]]) -> Report:
    """The report that was packed."""
    text = json.loads(str(arrays["report"]))
    points = []
    for i, point in enumerate(text["points"]):
        found = []
        for j, series in enumerate(point.pop("series")):
            samples: dict[str, Any] = {
                name: arrays[f"{i}/{j}/{name}"] for name in SAMPLES if f"{i}/{j}/{name}" in arrays
            }
            checks = Checks(**series.pop("checks"))
            found.append(Series(**series, checks=checks, **samples))
        points.append(Point(**point, series=tuple(found)))
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in text["settings"].items()
    }
    return Report(
        Settings(**settings), text["environment"], text["ranks"], points, text["interrupted"]
    )
