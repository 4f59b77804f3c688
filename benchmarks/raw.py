"""Raw samples in a file of numpy's, --samples FILE, and in the JSON of the results table.

The file is an .npz. "report" is a text: in JSON, the report without its samples. The samples of
series j of point i are the arrays "i/j/began", "i/j/ended", "i/j/late" and so on: what
`samples.Series` has, [iterations, ranks], times in ns of a clock that all ranks share. `load` gives
the report back.

`to_json` and `from_json` do the same with a point of the table's report.
"""

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

WORDS = ("name", "library", "loop")
FLAGS = ("late", "delayed")
SAMPLES = tuple(field.name for field in fields(Series) if field.name not in (*WORDS, "checks"))

Arrays = dict[str, npt.NDArray[Any]]


def samples_of(series: Series) -> Arrays:
    """Return the samples that a series has, by their names."""
    found = {name: getattr(series, name) for name in SAMPLES}
    return {name: each for name, each in found.items() if each is not None}


def save(path: str | Path, report: Report) -> None:
    """Write the file; OSError if that cannot be done."""
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **pack(report))
    write_file(Path(path), packed.getvalue())


def load(path: str | Path) -> Report:
    """Read a file that `save` wrote; OSError, ValueError or KeyError if it is none."""
    with np.load(path, allow_pickle=False) as arrays:
        return unpack(arrays)


def pack(report: Report) -> Arrays:
    """Return the arrays of the file, by their names."""
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
    """Return the report that was packed."""
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


# ---- in the table's report -----------------------------------------------------------------------


def to_json(point: Point) -> dict[str, Any]:
    """Return a point in JSON values; times count from the first arrival of each iteration."""
    return {"bytes": point.size, "series": {one.name: _series_to_json(one) for one in point.series}}


def from_json(point: dict[str, Any]) -> dict[str, Series]:
    """Return the series of a point that `to_json` gave, by their names."""
    return {name: _series_from_json(name, one) for name, one in point["series"].items()}


def _series_to_json(series: Series) -> dict[str, Any]:
    first = series.began.min(axis=1, keepdims=True)
    found = samples_of(series) | {"began": series.began - first, "ended": series.ended - first}
    return {
        "library": series.library,
        "loop": series.loop,
        "results": series.checks.results,
        "wrong": series.checks.wrong,
        "first_wrong": series.checks.first_wrong,
        **{name: samples.tolist() for name, samples in found.items()},
    }


def _series_from_json(name: str, stored: dict[str, Any]) -> Series:
    samples: dict[str, Any] = {
        part: np.array(stored[part], np.bool_ if part in FLAGS else np.int64)
        for part in SAMPLES
        if part in stored
    }
    checks = Checks(stored["results"], stored["wrong"], stored["first_wrong"])
    return Series(name, stored["library"], stored["loop"], **samples, checks=checks)
