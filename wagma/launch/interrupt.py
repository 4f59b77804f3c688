"""Ctrl-C, which may reach any of the ranks: all stop together, with what they have measured.

The first signal is noted; the ranks find out about it at the next look (`Interrupt.agreed`) and
stop there. The second one ends the process at once, wherever it is, and so do PATIENCE_S in which
the ranks have not agreed: a thread that waits for signals does that, since the interpreter of a
rank inside a call of MPI would never see them. Once they have agreed, printing and writing may take
as long as it does. A launcher may pass on the signal that the terminal has sent already: what
follows within ECHO_S is the same one.

Open MPI's launcher answers Ctrl-C with its own exit status, prints nothing more of its ranks', and
kills them half a second later (prterun of Open MPI 5: SIGCONT, SIGTERM and SIGKILL, 0.25 s apart).
"""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

STATUS = 130  # exit status: 128 + SIGINT
ECHO_S = 0.5
PATIENCE_S = 10.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, which some launchers turn into SIGTERM
LOOK_S = 0.0001
LISTEN_S = 1.0


class Interrupt:
    """A context manager, on all ranks; only in the main thread.

    Args:
        comm: communicator of all ranks, which is duplicated.

    Attributes:
        longest_s: longest time that a rank waits on purpose, added to the patience.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm.Dup()
        self._asked: float | None = None  # when
        self._agreed = False
        self.longest_s = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def __enter__(self) -> Self:
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _handle_nothing) for number in SIGNALS}
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)
        if kind is None:
            self._comm.Free()

    @property
    def asked(self) -> bool:
        """Whether this rank was interrupted."""
        return self._asked is not None

    def agreed(self) -> bool:
        """Return whether any rank was interrupted, equal on all ranks; collective."""
        if self._agreed:
            return True
        from mpi4py import MPI

        own = np.array([self._asked is not None], np.int32)
        any_rank = np.zeros_like(own)
        request = self._comm.Iallreduce(own, any_rank, op=MPI.MAX)
        while not request.Test():
            time.sleep(LOOK_S)  # leaves the core to ranks that still measure
        self._agreed = bool(any_rank[0])
        return self._agreed

    def _listen(self) -> None:
        while self._asked is None:
            received = os.read(self._read, 1)
            if not received:
                return  # the end
            if received[0] in SIGNALS:
                self._asked = time.monotonic()
        while (left := self._left()) > 0:
            if not select.select([self._read], [], [], min(left, LISTEN_S))[0]:
                continue
            received = os.read(self._read, 1)
            if not received:
                return
            if received[0] in SIGNALS and time.monotonic() - self._asked > ECHO_S:
                os._exit(STATUS)
        os.write(2, b"interrupted: a call did not end, this rank ends now\n")
        os._exit(STATUS)

    def _left(self) -> float:
        """Return the seconds left after an interrupt; the main thread may change them."""
        if self._agreed or self._asked is None:
            return math.inf
        return self._asked + PATIENCE_S + self.longest_s - time.monotonic()


def _handle_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing: with a handler Python writes to the wakeup pipe."""
