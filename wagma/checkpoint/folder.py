"""A folder of checkpoints: listing, writing and removing them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from wagma.checkpoint.files import make_folder, write_bytes, write_data
from wagma.checkpoint.manifest import Manifest, Training, why_not_whole
from wagma.checkpoint.names import (
    TEMPORARY,
    Place,
    data_name,
    manifest_name,
    newest_first,
    ranks_of,
)

__all__ = ["Folder"]

_RESTARTS = "restarts.json"


class Folder:
    """The checkpoints in a folder.

    Args:
        path: of the folder; made when something is written.

    Attributes:
        path: as given.
        damaged: checkpoints that could not be read: `prune` does not count them.

    Not thread-safe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole: set[Place] = set()  # checkpoints that were found whole
        self.damaged: set[Place] = set()  # checkpoints with a file that could not be read
        self._swept = False

    def places(self) -> list[Place]:
        """Return the checkpoints, whole or not, the newest first."""
        return newest_first(path.name for path in self.path.iterdir() if path.is_dir())

    def path_of(self, place: Place) -> Path:
        """Return the folder of a checkpoint."""
        return self.path / str(place)

    def manifest(self, place: Place, rank: int) -> Manifest | str:
        """Return a rank's manifest; a text: why there is none."""
        try:
            return Manifest.read((self.path_of(place) / manifest_name(rank)).read_text())
        except FileNotFoundError:
            return "is missing"
        except (OSError, ValueError) as error:
            return str(error).splitlines()[0]

    def manifests(self, place: Place) -> dict[int, Manifest | str]:
        """Return all manifests of a checkpoint by rank; texts: why they cannot be read."""
        try:
            ranks = ranks_of(path.name for path in self.path_of(place).iterdir())
        except FileNotFoundError:
            return {}
        return {rank: self.manifest(place, rank) for rank in sorted(ranks)}

    def is_whole(self, place: Place) -> bool:
        """Return whether the manifests of all ranks are there, and it is not known as damaged."""
        if place in self.damaged:
            return False
        if place not in self._whole and why_not_whole(self.manifests(place)) is None:
            self._whole.add(place)
        return place in self._whole

    # ---- writing ---------------------------------------------------------------------------------
    def write(
        self,
        place: Place,
        state: object,
        *,
        rank: int,
        size: int,
        token: str,
        version: int,
        training: Training,
    ) -> int:
        """Write a rank's part: its data and, when that is on the disk, its manifest.

        Returns:
            Bytes of the data.

        Raises:
            OSError: it cannot be written.
        """
        folder = self.path_of(place)
        make_folder(folder)
        name = data_name(rank)
        size_in_bytes, checksum = write_data(folder / name, state)
        manifest = Manifest(
            *(rank, size, place.run, token, version, name, size_in_bytes, checksum, training)
        )
        write_bytes(folder / manifest_name(rank), manifest.text().encode())
        return size_in_bytes

    # ---- what goes -------------------------------------------------------------------------------
    def prune(self, keep: int, run: int) -> list[Place]:
        """Remove what is older than the `keep` newest whole checkpoints; return what was removed.

        What a later run has saved whole at the same version counts as replaced.

        Args:
            keep: >= 1.
            run: that goes on: of older ones what they had begun to write is removed as well.

        Raises:
            OSError: something cannot be removed.
        """
        places = self.places()
        kept: set[int] = set()
        removed: list[Place] = []
        for place in places:
            if len(kept) >= keep or place.version in kept:
                self._remove(place)
                removed.append(place)
            elif self.is_whole(place):
                kept.add(place.version)
        if not self._swept:
            self._swept = True
            for place in places:
                if place.run < run and place not in removed:
                    for path in self.path_of(place).glob(f"*{TEMPORARY}"):
                        path.unlink(missing_ok=True)
        return removed

    def _remove(self, place: Place) -> None:
        """Remove a checkpoint, manifests first: what is left of it is never taken for whole."""
        self._whole.discard(place)
        folder = self.path_of(place)
        for path in sorted(folder.glob("rank-*.json")):
            path.unlink(missing_ok=True)
        shutil.rmtree(folder)

    # ---- restarts --------------------------------------------------------------------------------
    def restarts(self) -> int:
        """Return how many times the job was restarted, as far as was written down."""
        try:
            return max(0, int(json.loads((self.path / _RESTARTS).read_text())["restarts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def write_restarts(self, restarts: int) -> None:
        """Write down how many times the job was restarted.

        Raises:
            OSError: it cannot be written.
        """
        write_bytes(self.path / _RESTARTS, json.dumps({"restarts": restarts}).encode())
