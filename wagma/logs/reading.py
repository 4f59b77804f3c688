"""Read the numbers that `MetricsWriter` wrote."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wagma.logs.numbers import restore

__all__ = ["latest_run", "read_metrics"]

_NAME = re.compile(r"rank-(\d+)\.jsonl")
_TAIL = 1 << 16  # bytes at the end of a file that tell its latest run
_log = logging.getLogger("wagma")


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return what a training logged, one dict per version and rank, in the order of both.

    ``pandas.DataFrame(read_metrics("logs"))`` is a table. Where a training was resumed, what it had
    logged from there on before is left out: those steps were taken back. What was logged in several
    calls at one version is in one dict.

    Args:
        path: a folder, or the file of one rank in it.

    Raises:
        FileNotFoundError: there is no such file, or none of a rank in the folder.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if _NAME.fullmatch(one.name))
        if not files:
            raise FileNotFoundError(f"{path} has no rank-*.jsonl, which MetricsWriter writes")
    found = [line for file in files for line in _read_rank(file)]
    return sorted(found, key=lambda line: (line["version"], line["rank"]))


def latest_run(path: Path) -> int:
    """Return the number of the latest run that wrote to a file; -1: none did.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists():
        return -1
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        tail = file.read().split(b"\n")
    runs = [line["run"] for text in tail if (line := _parse(text)) is not None]
    return max(runs, default=-1)


def _read_rank(path: Path) -> list[dict[str, Any]]:
    """Return the lines of one rank, one per version."""
    named = _NAME.fullmatch(path.name)
    rank = int(named[1]) if named else 0
    by_version: dict[int, dict[str, Any]] = {}
    run = -1
    for line in _lines(path):
        if "event" in line:
            continue
        version = line["version"]
        if line["run"] != run:
            run = line["run"]
            by_version = {v: known for v, known in by_version.items() if v < version}
        by_version[version] = {"rank": rank, **by_version.get(version, {}), **restore(line)}
    return list(by_version.values())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    torn = 0
    with path.open("rb") as file:
        for text in file:
            if (line := _parse(text)) is not None:
                yield line
            elif text.strip():
                torn += 1
    if torn:
        _log.warning("%s: %d lines are left out, which are torn or no lines of metrics", path, torn)


def _parse(text: bytes) -> dict[str, Any] | None:
    """Return a line of metrics; None: it is something else, or torn."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    is_line = isinstance(line, dict) and isinstance(line.get("run"), int)
    is_line = is_line and ("event" in line or isinstance(line.get("version"), int))
    return line if is_line else None
