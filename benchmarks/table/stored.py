"""What was measured at a point, as the table's report keeps it in JSON, and back. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..raw import SAMPLES, samples_of
from ..samples import Checks, Point, Series

__all__ = ["load", "store"]

FLAGS = ("late", "delayed")


def store(point: Point) -> dict[str, Any]:
    """In JSON values; times count from the first arrival of each iteration."""
    return {"bytes": point.size, "series": {one.name: _store(one) for one in point.series}}


def load(point: dict[str, Any]) -> dict[str, Series]:
    """The series of a point that `store` gave, by their names."""
    return {name: _load(name, one) for name, one in point["series"].items()}


def _store(series: Series) -> dict[str, Any]:
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


def _load(name: str, stored: dict[str, Any]) -> Series:
    samples: dict[str, Any] = {
        part: np.array(stored[part], np.bool_ if part in FLAGS else np.int64)
        for part in SAMPLES
        if part in stored
    }
    checks = Checks(stored["results"], stored["wrong"], stored["first_wrong"])
    return Series(name, stored["library"], stored["loop"], **samples, checks=checks)
