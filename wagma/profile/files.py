"""Profiles in files of JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from wagma.launch.files import write_file
from wagma.profile.contents import PARTS, Seconds, TrainingProfile

FORMAT = "wagma profile"
VERSION = 1
DIGITS = 7  # of a second: a tenth of a microsecond

_TIMES = (*PARTS, "micro_batches", "hook_seconds")


class ProfileError(ValueError):
    """A file holds no profile, or not one that this version of wagma reads."""


def save(profile: TrainingProfile, path: str | os.PathLike[str]) -> None:
    """Write a profile; readers never see half of it.

    Raises:
        OSError: the file cannot be written.
    """
    write_file(Path(path), dump(profile))


def dump(profile: TrainingProfile) -> str:
    """Return a profile as JSON, with a line for each rank of an array."""
    sizes = {
        str(size): [count, round(seconds, DIGITS)]
        for size, (count, seconds) in sorted(profile.communication_sizes.items())
    }
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "method": profile.method,
        "model_bytes": profile.model_bytes,
        "communication_sizes": sizes,
        "hosts": list(profile.hosts),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    for name in _TIMES:
        times: Seconds | None = getattr(profile, name)
        if times is None or times.ndim == 1:
            rows = json.dumps(None if times is None else times.round(DIGITS).tolist())
        else:
            each = (json.dumps(row.round(DIGITS).tolist()) for row in times)
            rows = "[\n" + ",\n".join(each) + "\n]"
        lines.append(f"{json.dumps(name)}: {rows}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(path: str | os.PathLike[str]) -> TrainingProfile:
    """Read a profile that `wagma.Profile` wrote.

    Raises:
        OSError: the file cannot be read.
        ProfileError: it is no profile, one of another version, or one with wrong content; a
            ValueError that names the file, and the line or the field.
    """
    try:
        content = json.loads(Path(path).read_bytes())
    except json.JSONDecodeError as error:
        raise ProfileError(
            f"{path}:{error.lineno}: is no JSON: {error.msg}; name a whole file that "
            "wagma.Profile wrote"
        ) from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path} is no text: name a file that wagma.Profile wrote") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ProfileError(f"{path} is no profile: name a file that wagma.Profile wrote")
    if (version := content.get("version")) != VERSION:
        raise ProfileError(
            f"{path} has version {version!r}, and this wagma reads version {VERSION}: record the "
            "training again, or read the file with the wagma that wrote it"
        )
    try:
        return _profile(content)
    except (TypeError, ValueError) as error:
        raise ProfileError(f"{path}: {error}") from None


def _profile(content: Mapping[str, Any]) -> TrainingProfile:
    if missing := [name for name in (*_TIMES, "hosts", "model_bytes") if name not in content]:
        raise ValueError(f"has no {missing[0]}")
    hosts, model_bytes, method = (content.get(n) for n in ("hosts", "model_bytes", "method"))
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ValueError("hosts is no list of names")
    if type(model_bytes) is not int or model_bytes < 0:
        raise ValueError(f"model_bytes is {model_bytes!r}: it has to be a number of bytes")
    if not isinstance(method, str | None):
        raise ValueError(f"method is {method!r}: it has to be a name or null")
    times = {name: _times(name, content[name]) for name in _TIMES if content[name] is not None}
    if lacking := [name for name in _TIMES if name not in times and name != "micro_batches"]:
        raise ValueError(f"{lacking[0]} is null")
    return TrainingProfile(
        hosts=tuple(hosts),
        model_bytes=model_bytes,
        method=method,
        communication_sizes=_sizes(content.get("communication_sizes", {})),
        micro_batches=times.pop("micro_batches", None),
        **times,
    )


def _times(name: str, values: Any) -> Seconds:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(_unequal(name, values)) from None


def _unequal(name: str, values: Any) -> str:
    """Say why values are no array."""
    rows = values if isinstance(values, list) else []
    lengths = [len(row) for row in rows if isinstance(row, list)]
    for rank, length in enumerate(lengths):
        if len(lengths) == len(rows) and length != lengths[0]:
            return (
                f"{name} has {lengths[0]} steps of rank 0 and {length} of rank {rank}: all ranks "
                "need the same number"
            )
    return f"{name} holds something else than numbers, or its steps have unequal lengths"


def _sizes(values: Any) -> dict[int, tuple[int, float]]:
    try:
        sizes = {int(size): (int(n), float(seconds)) for size, (n, seconds) in values.items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            "communication_sizes has to be an object: bytes, and a count with seconds"
        ) from None
    for size, (count, seconds) in sizes.items():
        if size < 0 or count < 0 or not 0 <= seconds < math.inf:
            raise ValueError(
                f"communication_sizes has {size}: [{count}, {seconds}]; bytes, the count and the "
                "seconds are finite, 0 or more"
            )
    return sizes
