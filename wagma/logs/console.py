"""A console for many ranks that shows each kind of message once, not once per rank."""

import logging
import os
import re
import sys
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import TextIO

_MOST_KINDS = 1000  # kinds of messages that a rank shows at most
_LONGEST = 1000  # characters of another rank's message


class Shown:
    """The kinds of messages that any rank has shown, as empty files in a folder.

    Messages of one kind differ in their numbers only.

    Args:
        folder: a folder that all ranks share; created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()

    def is_new(self, record: logging.LogRecord) -> bool:
        """Mark a kind of message as shown; return whether no rank had shown it before."""
        text = re.sub(r"\d+", "#", f"{record.name} {record.levelname} {_first_line(record)}")
        if text in self._seen or len(self._seen) >= _MOST_KINDS:
            return False
        self._seen.add(text)
        name = sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            return False
        except OSError:
            return True
        return True

    def clear(self) -> None:
        """Remove the folder, if possible."""
        try:
            for file in self._folder.iterdir():
                file.unlink(missing_ok=True)
            self._folder.rmdir()
        except OSError:
            pass


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """Show all records of the chosen ranks, and new kinds of warnings of the others.

    Args:
        shown: the kinds of messages shown so far.
        level: lowest level that chosen ranks show.
        is_chosen: whether this rank is chosen. Other ranks show warnings and errors.
    """

    def __init__(self, shown: Shown, level: int, *, is_chosen: bool) -> None:
        super().__init__(sys.stderr)
        self.setLevel(level if is_chosen else max(level, logging.WARNING))
        self._shown = shown
        self._is_chosen = is_chosen

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, or leave it to the file of its rank."""
        is_new = record.levelno < logging.WARNING or self._shown.is_new(record)
        if self._is_chosen or is_new:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the whole record on a chosen rank, one line of it on others."""
        text = super().format(record)
        return text if self._is_chosen else text.split("\n")[0][:_LONGEST]


def _first_line(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().split("\n")[0]
    except Exception:  # arguments do not match the message: logging reports that when it is shown
        return str(record.msg)


def check_ranks(ranks: Collection[int]) -> frozenset[int]:
    """Return the ranks as a set.

    Raises:
        TypeError: a rank is no whole number.
    """
    unique = frozenset(ranks)
    for rank in unique:
        if type(rank) is not int:
            raise TypeError(f"console_ranks has {rank!r}: give ranks, such as (0,)")
    return unique
