"""Writing now, or beside the training."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Writer"]


class Writer:
    """Runs one job after the other; an error is told at the next call of `wait`.

    Args:
        asynchronous: in a thread, which the end of the process waits for.

    Not thread-safe.
    """

    def __init__(self, *, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Run a job, or begin with it; call `wait` before."""
        if not self._asynchronous:
            self._run(job)
            return
        self._thread = threading.Thread(target=self._run, args=(job,), name="wagma-checkpoint")
        self._thread.start()

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            self._error = error

    def wait(self) -> Exception | None:
        """Wait for the job that runs; return what it, or one that ran here, raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error
