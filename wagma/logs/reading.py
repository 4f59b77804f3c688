"""Reading of the metrics that `MetricsWriter` wrote."""

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wagma.logs.numbers import restore

_NAME = re.compile(r"rank-(\d+)\.jsonl")
_TAIL = 1 << 16  # bytes at the end of a file to search for its latest run
_log = logging.getLogger("wagma")


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the metrics of a training, one dict per version and rank, ordered by both.

    ``pandas.DataFrame(read_metrics("logs"))`` is a table. If a training was resumed at an earlier
    version, its older lines from that version on are left out, because those steps were undone.
    Several calls at one version are merged into one dict.

    Args:
        path: a folder, or the file of one rank.

    Raises:
        FileNotFoundError: the file does not exist, or the folder has no rank's file.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if _NAME.fullmatch(one.name))
        if not files:
            raise FileNotFoundError(f"{path} has no rank-*.jsonl, which MetricsWriter writes")
    lines = [line for file in files for line in _read_rank(file)]
    return sorted(lines, key=lambda line: (line["version"], line["rank"]))


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
        _log.warning("%s: skipped %d lines that are torn or no lines of metrics", path, torn)


def _parse(text: bytes) -> dict[str, Any] | None:
    """Parse a line of metrics; None: it is something else, or torn."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    is_line = isinstance(line, dict) and isinstance(line.get("run"), int)
    is_line = is_line and ("event" in line or isinstance(line.get("version"), int))
    return line if is_line else None
