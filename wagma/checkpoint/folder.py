"""A folder of checkpoints: listing, writing and removing them."""

import json
import shutil
from pathlib import Path

from wagma.checkpoint.files import make_folder, write_bytes, write_data
from wagma.checkpoint.manifest import (
    Manifest,
    OtherFormat,
    OtherFormatError,
    Training,
    why_not_whole,
)
from wagma.checkpoint.names import (
    TEMPORARY,
    Place,
    data_name,
    manifest_name,
    newest_first,
    ranks_of,
)

_RESTARTS = "restarts.json"


class Folder:
    """The checkpoints in a folder.

    Args:
        path: path of the folder; created with the first checkpoint.

    Attributes:
        path: as given.
        damaged: checkpoints that could not be read, which `prune` does not count.

    Not thread-safe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole: set[Place] = set()  # checkpoints known to be complete
        self.damaged: set[Place] = set()
        self._swept = False

    def places(self) -> list[Place]:
        """Return all checkpoints, complete or not, the newest first."""
        return newest_first(path.name for path in self.path.iterdir() if path.is_dir())

    def path_of(self, place: Place) -> Path:
        """Return the folder of a checkpoint."""
        return self.path / str(place)

    def manifest(self, place: Place, rank: int) -> Manifest | str:
        """Return a rank's manifest, or as a string why it cannot be read."""
        try:
            return Manifest.read((self.path_of(place) / manifest_name(rank)).read_text())
        except FileNotFoundError:
            return "is missing"
        except OtherFormatError as error:
            return OtherFormat(error)
        except (OSError, ValueError) as error:
            return str(error).splitlines()[0]

    def manifests(self, place: Place) -> dict[int, Manifest | str]:
        """Return all manifests of a checkpoint by rank, or as a string why one cannot be read."""
        try:
            ranks = ranks_of(path.name for path in self.path_of(place).iterdir())
        except FileNotFoundError:
            return {}
        return {rank: self.manifest(place, rank) for rank in sorted(ranks)}

    def is_whole(self, place: Place) -> bool:
        """Return whether the manifests of all ranks exist, and none of its files is damaged."""
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
        """Write a rank's data and, when the data is on the disk, its manifest.

        Returns:
            Number of bytes of the data.

        Raises:
            OSError: a file cannot be written.
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

    # ---- removing --------------------------------------------------------------------------------
    def prune(self, keep: int, run: int) -> list[Place]:
        """Remove checkpoints older than the `keep` newest complete ones; return those removed.

        A complete checkpoint replaces earlier runs' checkpoints of the same version.

        Args:
            keep: number of complete checkpoints to keep, >= 1.
            run: the current run; temporary files of earlier runs are removed as well.

        Raises:
            OSError: a file cannot be removed.
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
        """Remove a checkpoint, manifests first, so that the rest never counts as complete."""
        self._whole.discard(place)
        folder = self.path_of(place)
        for path in sorted(folder.glob("rank-*.json")):
            path.unlink(missing_ok=True)
        shutil.rmtree(folder)

    # ---- restarts --------------------------------------------------------------------------------
    def restarts(self) -> int:
        """Return the recorded number of restarts; 0 without a record."""
        try:
            return max(0, int(json.loads((self.path / _RESTARTS).read_text())["restarts"]))
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def write_restarts(self, restarts: int) -> None:
        """Record the number of restarts.

        Raises:
            OSError: the file cannot be written.
        """
        write_bytes(self.path / _RESTARTS, json.dumps({"restarts": restarts}).encode())
