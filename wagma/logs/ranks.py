"""Log records of each rank, in a file of its own and on the console."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from wagma.launch.logs import rank_prefix
from wagma.logs.console import ConsoleHandler, Shown, check_ranks
from wagma.logs.lines import LineFile, open_on_all, rank_file
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

LEVEL = "WAGMA_LOG_LEVEL"
CONSOLE = "WAGMA_LOG_CONSOLE"
_log = logging.getLogger("wagma")


class RankLogs:
    """Write the log records of each rank to ``DIRECTORY/rank-00003.log``, within a with block.

    A line has the time, the level, the rank, the host, the logger and the message; lines are
    appended. The console (standard error) shows the records of rank 0 from the level `console` on.
    Of the other ranks it shows warnings and errors, each kind once: a message of 64 ranks is one
    line. An exception that ends the block is written to the file with its traceback.

    Creation is collective. Handlers and levels of the loggers are restored at the end.

    Args:
        directory: folder for the files of all ranks; created if it is missing.
        comm: the ranks, as for an algorithm.
        level: lowest level in the files, a name or a number of `logging`. The variable
            WAGMA_LOG_LEVEL overrides it.
        console: lowest level of rank 0 on the console; None or "NONE": show nothing. The variable
            WAGMA_LOG_CONSOLE overrides it.
        console_ranks: ranks that the console shows like rank 0.
        loggers: loggers whose records are written; "" is the root logger, for all records.

    Raises:
        TypeError, ValueError: an argument or a variable is wrong.
        OSError: a file cannot be created.
        All on every rank; or what `PartialAllreduce` raises for a wrong `comm`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        comm: Comm = "auto",
        *,
        level: str | int = "INFO",
        console: str | int | None = "INFO",
        console_ranks: Collection[int] = (0,),
        loggers: Collection[str] = ("wagma",),
    ) -> None:
        from wagma.collectives.rendezvous.meeting import Meeting
        from wagma.collectives.rendezvous.patience import Patience

        self._directory = Path(directory)
        self._restored: list[tuple[logging.Logger, int]] = []
        self._handlers: list[logging.Handler] = []
        opened: list[LineFile] = []

        def open_file() -> str:
            self._levels = _levels(os.environ, level, console)
            self._chosen = check_ranks(console_ranks)
            self._names = _outermost(loggers)
            self._directory.mkdir(parents=True, exist_ok=True)
            opened.append(LineFile(rank_file(self._directory, meeting.rank, "log")))
            if meeting.rank == 0:
                for left_over in self._directory.glob(".shown-*"):
                    Shown(left_over).clear()
            return os.urandom(4).hex()

        try:
            with Meeting(comm, Patience()) as meeting:
                self.rank, self.size = meeting.rank, meeting.size
                run = open_on_all(meeting, open_file)[0]
        except BaseException:
            for file in opened:
                file.close()
            raise
        self._file = opened[0]
        self._shown = Shown(self._directory / f".shown-{run}")

    def __enter__(self) -> Self:
        to_file, to_console = self._levels
        prefix = rank_prefix(self.rank, self.size)
        file = _FileHandler(self._file)
        file.setLevel(to_file)
        file.setFormatter(_Formatter(prefix, socket.gethostname()))
        self._handlers = [file]
        if to_console is not None:
            chosen = self.rank in self._chosen
            shown = ConsoleHandler(self._shown, to_console, is_chosen=chosen)
            shown.setFormatter(_Formatter(prefix))
            self._handlers.append(shown)
        least = min(handler.level for handler in self._handlers)
        for name in self._names:
            logger = logging.getLogger(name)
            self._restored.append((logger, logger.level))
            logger.setLevel(least)
            for handler in self._handlers:
                logger.addHandler(handler)
        if self.rank == 0:
            _log.info("logs of %s in %s", plural(self.size, "rank"), self._directory.resolve())
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and self._handlers:
            record = _log.makeRecord(
                _log.name,
                logging.ERROR,
                __file__,
                0,
                "an exception ends the program",
                (),
                (type(error), error, trace),
            )
            self._handlers[0].handle(record)  # the file alone: the interpreter prints it
        self.close()

    def close(self) -> None:
        """Restore the loggers and close the file; may be called again."""
        for logger, level in self._restored:
            for handler in self._handlers:
                logger.removeHandler(handler)
            logger.setLevel(level)
        self._restored = []
        for handler in self._handlers:
            handler.close()
        self._handlers = []
        self._file.close()
        if self.rank == 0:
            self._shown.clear()


class _FileHandler(logging.Handler):
    """Append records to a file; errors of its disk are logged, not raised."""

    def __init__(self, file: LineFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record."""
        try:
            self._file.add(self.format(record))
        except Exception:
            self.handleError(record)


class _Formatter(logging.Formatter):
    """Format a record with its rank, only once if the message begins with the same prefix."""

    def __init__(self, prefix: str, host: str = "") -> None:
        where = f"{host} " if host else ""
        super().__init__(f"%(asctime)s %(levelname)s {prefix} {where}%(name)s: %(message)s")
        self._prefix = f"{prefix} "

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the line of a record, without exception and stack."""
        message = record.message
        record.message = message.removeprefix(self._prefix)
        try:
            return super().formatMessage(record)
        finally:
            record.message = message


def _levels(
    environ: Mapping[str, str], level: str | int, console: str | int | None
) -> tuple[int, int | None]:
    """Return the levels of file and console."""
    named: list[tuple[str, str | int | None]] = [("level", level), ("console", console)]
    for place, variable in enumerate((LEVEL, CONSOLE)):
        if environ.get(variable):
            named[place] = (variable, environ[variable])
    (name, to_file), (shown_name, to_console) = named
    if to_console is None or str(to_console).upper() == "NONE":
        return _level(name, to_file), None
    return _level(name, to_file), _level(shown_name, to_console)


def _level(name: str, value: str | int | None) -> int:
    if type(value) is int:
        return value
    known = logging.getLevelNamesMapping()
    known.pop("NOTSET", None)
    if not isinstance(value, str) or value.upper() not in known:
        raise ValueError(f"{name} is {value!r}: choose from {', '.join(known)}")
    return known[value.upper()]


def _outermost(names: Collection[str]) -> list[str]:
    """Return the loggers that are not below another one in `names`."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f'loggers is {names!r}: give names, such as ("wagma", "train")')
    if "" in names:
        return [""]
    return [
        name
        for name in dict.fromkeys(names)
        if not any(name.startswith(f"{other}.") for other in names)
    ]
