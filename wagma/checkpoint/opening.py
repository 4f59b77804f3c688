"""Opening a folder of checkpoints: one job has it, and all of its ranks see it."""

from __future__ import annotations

import time
import weakref

from wagma.checkpoint.errors import CheckpointError, together
from wagma.checkpoint.files import make_folder
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.lock import FolderLock, read_token
from wagma.launch.files import check_writable
from wagma.launch.logs import RankLogger
from wagma.training.strategies.base import Algorithm

__all__ = ["OpenFolder"]

_SEEN_AFTER_S = (0.0, 0.1, 0.5, 2.0, 5.0)  # NFS shows other hosts' files with a delay


class OpenFolder:
    """A folder that the ranks of a job have opened; making it is collective.

    Rank 0 locks the folder, for as long as its process lives or until `release`.

    Args:
        folder: made if it is not there.
        algorithm: whose ranks meet.
        log: warns of a file system without locks.

    Attributes:
        token: drawn by the process that has the lock; the same on all ranks.
        run: number of this run, which no checkpoint there has had.
        restarts: how often the job was restarted.

    Raises:
        CheckpointError: the folder cannot be written or is not the same on all ranks, or another
            job uses it; on every rank.

    Not thread-safe.
    """

    def __init__(self, folder: Folder, algorithm: Algorithm, log: RankLogger) -> None:
        self._folder = folder
        self._algorithm = algorithm
        self._log = log
        self._lock: FolderLock | None = None
        what = f"save checkpoints in {folder.path}"
        try:
            self.token, self.restarts, self.run = together(algorithm, self._open, what)[0]
            together(algorithm, self._check_shared, what)
        except BaseException:
            self.release()
            raise

    def _open(self) -> list[object] | None:
        """Lock the folder on rank 0, and return what all ranks have to know."""
        if self._algorithm.rank != 0:
            return None
        path = self._folder.path
        path.mkdir(parents=True, exist_ok=True)
        make_folder(path)
        self._lock = FolderLock(path)
        weakref.finalize(self, self._lock.release)
        if not self._lock.shared:
            self._log.warning(
                "%s lies on a file system without locks: nothing keeps two jobs from saving there",
                path,
            )
        return [self._lock.token, self._folder.restarts(), self._next_run()]

    def _check_shared(self) -> None:
        """Check that this rank sees rank 0's folder, and can write there.

        Raises:
            CheckpointError: it sees another one, or none.
            OSError: it cannot write.
        """
        path, rank = self._folder.path, self._algorithm.rank
        if rank == 0:  # to read the lock's file would free the lock
            return
        for pause in _SEEN_AFTER_S:
            time.sleep(pause)
            if read_token(path) == self.token:
                check_writable(path / f"probe-{rank}")
                return
        raise CheckpointError(
            f"this rank does not see what rank 0 has written into {path}: save into a folder that "
            "all hosts share"
        )

    def _next_run(self) -> int | None:
        """Return the number of a new run on rank 0."""
        if self._lock is None:
            return None
        return self._lock.next_run(max([0, *(place.run for place in self._folder.places())]))

    def begin_run(self) -> None:
        """Begin another run, in whose folders no rank has written; collective.

        Raises:
            CheckpointError: the folder cannot be read; on every rank.
        """
        what = f"save checkpoints in {self._folder.path}"
        self.run = together(self._algorithm, self._next_run, what)[0]

    def release(self) -> None:
        """Let other jobs into the folder; local, may be called again."""
        if self._lock is not None:
            self._lock.release()
