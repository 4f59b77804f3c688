"""The names in a folder of checkpoints, and their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

TEMPORARY = ".tmp"  # suffix of a file that is being written
_PLACE = re.compile(r"run-(\d{3,})-version-(\d{8,})")
_MANIFEST = re.compile(r"rank-(\d{5,})\.json")


@dataclass(frozen=True, order=True)
class Place:
    """Name of one checkpoint in a folder. Later checkpoints compare as larger, without clocks."""

    run: int  # number of the training that used the folder, from 1 on
    version: int  # version of the ranks, or a multiple of `every` that they had just passed

    def __str__(self) -> str:
        return f"run-{self.run:03d}-version-{self.version:08d}"

    @classmethod
    def of(cls, name: str) -> Place | None:
        """Parse a name; None if it is no checkpoint's."""
        match = _PLACE.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


def newest_first(names: Iterable[str]) -> list[Place]:
    """Return the checkpoints among the names in a folder, the newest first."""
    places = (Place.of(name) for name in names)
    return sorted((place for place in places if place is not None), reverse=True)


def manifest_name(rank: int) -> str:
    """Return the name of a rank's manifest, which exists when its data is complete."""
    return f"rank-{rank:05d}.json"


def data_name(rank: int) -> str:
    """Return the name of a rank's data."""
    return f"rank-{rank:05d}.pt"


def ranks_of(names: Iterable[str]) -> set[int]:
    """Return the ranks whose manifests are among the names in a checkpoint."""
    matches = (_MANIFEST.fullmatch(name) for name in names)
    return {int(match[1]) for match in matches if match is not None}
