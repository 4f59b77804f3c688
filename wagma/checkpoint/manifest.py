"""The manifest of a rank's part of a checkpoint: its checksum, and its training."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import PurePath
from typing import Any

from wagma.units import rank_list

FORMAT = 1
_SHOWN = 20  # differences shown of each kind


@dataclass(frozen=True)
class Training:
    """The parts of a training that must match when a checkpoint is loaded."""

    algorithm: str  # class name of the algorithm
    arguments: dict[str, str]  # arguments of the algorithm as strings
    policy: str  # class name of the compute policy
    inner: str  # class name of the inner optimizer
    groups: list[int]  # number of parameters in each of its groups
    # dtype and shape by name of the model's tensors, without a model the optimizer's
    tensors: dict[str, str]
    extra: list[str]  # names of the other objects


class OtherFormat(str):
    """Why a manifest of another version of wagma cannot be read: it is not damaged."""


class OtherFormatError(ValueError):
    """A manifest has another format than this wagma reads."""


@dataclass(frozen=True)
class Manifest:
    """Description of a rank's data, in a file of its own that is written last."""

    rank: int
    size: int  # number of ranks
    run: int  # run of the folder, see `names.Place`
    token: str  # random token of the run, which distinguishes two jobs with one run number
    version: int  # version of the rank
    file: str  # name of the data file
    bytes: int  # size of the data
    checksum: str  # checksum of the data
    training: Training  # the training that the data belongs to

    def text(self) -> str:
        """Return the manifest as JSON."""
        content = asdict(self)
        return json.dumps(
            {"format": FORMAT, "checksum": _checksum(content), "manifest": content}, indent=1
        )

    @classmethod
    def read(cls, text: str) -> Manifest:
        """Parse a manifest.

        Raises:
            OtherFormatError: the manifest is of another version of wagma.
            ValueError: the text is no manifest, or was changed.
        """
        content = json.loads(text)
        kind = content.get("format") if isinstance(content, dict) else None
        if kind != FORMAT:
            error = OtherFormatError if type(kind) is int else ValueError
            raise error(f"is of format {kind!r}, and this wagma reads format {FORMAT}")
        values = content.get("manifest")
        if not isinstance(values, dict) or content.get("checksum") != _checksum(values):
            raise ValueError("is not as it was written")
        training = Training(**_typed_fields(Training, values.get("training")))
        manifest = cls(**{**_typed_fields(cls, values), "training": training})
        if not 0 <= manifest.rank < manifest.size:
            raise ValueError(f"is of rank {manifest.rank} of {manifest.size}")
        if PurePath(manifest.file).name != manifest.file:
            raise ValueError(f"names a file outside its folder, {manifest.file!r}")
        return manifest


def _checksum(content: object) -> str:
    return f"crc32:{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


_KINDS: dict[str, type] = {
    "int": int,
    "str": str,
    "list[int]": list,
    "list[str]": list,
    "dict[str, str]": dict,
    "Training": dict,
}


def _typed_fields(kind: type, content: Any) -> dict[str, Any]:
    """Return the fields of a dataclass from JSON, checked for their types."""
    if not isinstance(content, dict):
        raise ValueError(f"has no {kind.__name__}")
    values = {}
    for field in fields(kind):
        value = content.get(field.name)
        if not isinstance(value, _KINDS[str(field.type)]):
            raise ValueError(f"has {field.name}={value!r}")
        values[field.name] = value
    return values


def why_not_whole(manifests: Mapping[int, Manifest | str]) -> str | None:
    """Return why the manifests make no complete checkpoint; None: they do.

    Args:
        manifests: manifests by rank, or as a string why one cannot be read.
    """
    unreadable = {rank: text for rank, text in manifests.items() if isinstance(text, str)}
    if unreadable:
        rank = min(unreadable)
        return f"the manifest of rank {rank} {unreadable[rank]}"
    present = {rank: one for rank, one in manifests.items() if isinstance(one, Manifest)}
    if not present:
        return "no rank has finished its part"
    wrong = [rank for rank, one in present.items() if one.rank != rank]
    if wrong:
        return f"the manifest of rank {wrong[0]} is that of rank {present[wrong[0]].rank}"
    if len({(one.size, one.token, one.run) for one in present.values()}) > 1:
        return "its parts were saved by different jobs"
    size = next(iter(present.values())).size
    missing = [rank for rank in range(size) if rank not in present]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        return f"the part of {rank_list(missing)} of {size} {verb} missing"
    return None


def differences(saved: Training, mine: Training, *, same_size: bool = True) -> list[str]:
    """Return one line per difference.

    Args:
        saved: the training of the checkpoint.
        mine: the training that loads it.
        same_size: the number of ranks is the same; otherwise arguments may differ.
    """
    lines = []
    for what, then, now in (
        ("algorithm", saved.algorithm, mine.algorithm),
        ("compute policy", saved.policy, mine.policy),
        ("inner optimizer", saved.inner, mine.inner),
    ):
        if then != now:
            lines.append(f"{what}: saved {then}, here {now}")
    if same_size and saved.algorithm == mine.algorithm:
        lines += _compare(f"argument of {mine.algorithm}", saved.arguments, mine.arguments)
    if saved.groups != mine.groups:
        lines.append(f"parameters in each group: saved {saved.groups}, here {mine.groups}")
    lines += _compare("tensor", saved.tensors, mine.tensors)
    lines += [f"extra {name!r}: saved, not here" for name in _without(saved.extra, mine.extra)]
    lines += [f"extra {name!r}: here, not saved" for name in _without(mine.extra, saved.extra)]
    return lines


def _without(names: Sequence[str], others: Sequence[str]) -> list[str]:
    return [name for name in names if name not in others]


def _compare(what: str, saved: Mapping[str, str], mine: Mapping[str, str]) -> list[str]:
    lines = []
    for name in [*saved, *(name for name in mine if name not in saved)]:
        then, now = saved.get(name), mine.get(name)
        if then is None:
            lines.append(f"{what} {name}: here {now}, not saved")
        elif now is None:
            lines.append(f"{what} {name}: saved {then}, not here")
        elif then != now:
            lines.append(f"{what} {name}: saved {then}, here {now}")
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"and {len(lines) - _SHOWN} more"]
    return lines
