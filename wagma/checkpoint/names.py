"""The names in a folder of checkpoints, and their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["TEMPORARY", "Place", "data_name", "manifest_name", "newest_first", "ranks_of"]

TEMPORARY = ".tmp"  # how the name of a file ends that is being written
_PLACE = re.compile(r"run-(\d{3,})-version-(\d{8,})")
_MANIFEST = re.compile(r"rank-(\d{5,})\.json")


@dataclass(frozen=True, order=True)
class Place:
    """One checkpoint of a folder. Later ones are larger, whatever any clock says.

    Attributes:
        run: counts the trainings that have used the folder, from 1 on.
        version: at which the ranks were, or which they had just passed.
    """

    run: int
    version: int

    def __str__(self) -> str:
        return f"run-{self.run:03d}-version-{self.version:08d}"

    @classmethod
    def of(cls, name: str) -> Place | None:
        """Return the checkpoint of this name; None: it is no checkpoint's."""
        found = _PLACE.fullmatch(name)
        return None if found is None else cls(int(found[1]), int(found[2]))


def newest_first(names: Iterable[str]) -> list[Place]:
    """Return the checkpoints among the names in a folder."""
    found = (Place.of(name) for name in names)
    return sorted((place for place in found if place is not None), reverse=True)


def manifest_name(rank: int) -> str:
    """Return the name of a rank's manifest, which says that its data is there."""
    return f"rank-{rank:05d}.json"


def data_name(rank: int) -> str:
    """Return the name of a rank's data."""
    return f"rank-{rank:05d}.pt"


def ranks_of(names: Iterable[str]) -> set[int]:
    """Return the ranks whose manifests are among the names in a checkpoint."""
    found = (_MANIFEST.fullmatch(name) for name in names)
    return {int(match[1]) for match in found if match is not None}
