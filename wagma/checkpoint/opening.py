"""Opening a folder of checkpoints for one job whose ranks all see it."""

import time
import weakref

from wagma.checkpoint.errors import CheckpointError, together
from wagma.checkpoint.files import make_folder
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.lock import FolderLock, read_token
from wagma.launch.files import check_writable
from wagma.launch.logs import RankLogger
from wagma.training.strategies.base import Algorithm

_RETRIES_S = (0.0, 0.1, 0.5, 2.0, 5.0)  # NFS shows other hosts' files with a delay


class OpenFolder:
    """A folder opened by the ranks of a job; creation is collective.

    Rank 0 locks the folder until `release`, or the end of its process.

    Args:
        folder: the folder, created if it is missing.
        algorithm: the algorithm of the ranks.
        log: gets a warning about a file system without locks.

    Attributes:
        token: random token of the process with the lock; the same on all ranks.
        run: number of this run, larger than that of any checkpoint in the folder.
        restarts: number of restarts of the job, to which the checkpointer adds a coming one.

    Raises:
        CheckpointError: the folder cannot be written or differs between the ranks, or another job
            uses it; on every rank.

    Not thread-safe.
    """

    def __init__(self, folder: Folder, algorithm: Algorithm, log: RankLogger) -> None:
        self._folder = folder
        self._algorithm = algorithm
        self._log = log
        self._lock: FolderLock | None = None
        self.restarts: int
        what = f"save checkpoints in {folder.path}"
        try:
            self.token, self.restarts, self.run = together(algorithm, self._open, what)[0]
            together(algorithm, self._check_shared, what)
        except BaseException:
            self.release()
            raise

    def _open(self) -> list[object] | None:
        """Lock the folder on rank 0; return token, restarts and run for all ranks."""
        if self._algorithm.rank != 0:
            return None
        path = self._folder.path
        path.mkdir(parents=True, exist_ok=True)
        make_folder(path)
        self._lock = FolderLock(path)
        weakref.finalize(self, self._lock.drop)
        if not self._lock.shared:
            self._log.warning(
                "%s is on a file system without locks: nothing keeps two jobs from saving there",
                path,
            )
        return [self._lock.token, self._folder.restarts(), self._next_run()]

    def _check_shared(self) -> None:
        """Check that this rank sees rank 0's folder, and can write there.

        Raises:
            CheckpointError: this rank sees another folder, or none.
            OSError: this rank cannot write.
        """
        path, rank = self._folder.path, self._algorithm.rank
        if rank == 0:  # reading the lock file would free the lock
            return
        for pause in _RETRIES_S:
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
        """Begin a new run, with new names for its checkpoints; collective.

        Raises:
            CheckpointError: the folder cannot be read; on every rank.
        """
        what = f"save checkpoints in {self._folder.path}"
        self.run = together(self._algorithm, self._next_run, what)[0]

    def release(self) -> None:
        """Unlock the folder; local, may be called again."""
        if self._lock is not None:
            self._lock.release()
