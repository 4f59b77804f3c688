"""Signal handlers that call a function and the handlers installed before."""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any


class Handlers:
    """Handlers of some signals; each calls a function, and then the handler installed before.

    `restore` puts the earlier handlers back, and so do forked children. If the earlier action is to
    end the process, children ignore the signal instead, except SIGTERM, by which parents end them:
    launchers send a signal to all processes of a rank, and a data loader whose workers die raises
    an error. Outside the main thread nothing is installed.

    Args:
        signals: the signals.
        function: called in a handler, between any two instructions of the main thread.

    Attributes:
        installed: whether there are handlers.

    Raises:
        TypeError, ValueError: a number is no signal, or the signal cannot be caught.
    """

    def __init__(self, signals: Iterable[int], function: Callable[[signal.Signals], None]) -> None:
        self._signals = list(dict.fromkeys(map(_checked, signals)))
        self._function = function
        self._process = os.getpid()
        self._before: dict[signal.Signals, Any] = {}
        self.installed = threading.current_thread() is threading.main_thread()
        if self.installed:
            _ALL.add(self)
            for number in self._signals:
                self._before[number] = signal.getsignal(number)
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._process and self in _ALL:
            self._function(signal.Signals(number))
        before = self._before[signal.Signals(number)]
        if callable(before):
            before(number, frame)

    def restore(self) -> None:
        """Restore the earlier handlers, unless others were installed since; may be called again.

        A handler installed since may call this one, which has no effect any more.
        """
        _ALL.discard(self)
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    def ignore(self) -> None:
        """Ignore the signals from now on if the earlier action would end the process."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle and before == signal.SIG_DFL:
                signal.signal(number, signal.SIG_IGN)


# All installed handlers; no WeakSet, because the signal module keeps handlers alive.
_ALL: set[Handlers] = set()


def _restore_in_child() -> None:
    caught: set[signal.Signals] = set()
    for handlers in list(_ALL):
        handlers.restore()
        caught.update(handlers._before)
    for number in caught - {signal.SIGTERM, signal.SIGINT}:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)


os.register_at_fork(after_in_child=_restore_in_child)


def _checked(number: int) -> signal.Signals:
    try:
        known = signal.Signals(number)
    except ValueError:
        raise ValueError(
            f"signals: {number!r} is no signal of this system; pass such as signal.SIGUSR2"
        ) from None
    if known in (signal.SIGKILL, signal.SIGSTOP):
        raise ValueError(f"signals: {known.name} cannot be caught; leave it out")
    return known
