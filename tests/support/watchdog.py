"""Ends a process whose test hangs, with the stacks of its threads.

Works without the GIL, so that a call that waits while it holds it is ended too. Under MPI the
launcher then ends the other ranks. Give more seconds than any test takes on a busy machine.
"""

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager

WATCHDOG_S = 120.0

_stderr = 2


def keep_stderr() -> None:
    """Keep the file that errors go to, which is called where the output is not captured."""
    global _stderr
    _stderr = os.dup(2)


def tell(text: str) -> None:
    """Write to the log of this process at once, from within a test whose output is captured."""
    os.write(_stderr, text.encode())


@contextmanager
def watched(seconds: float = WATCHDOG_S) -> Iterator[None]:
    faulthandler.dump_traceback_later(seconds, exit=True, file=_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
