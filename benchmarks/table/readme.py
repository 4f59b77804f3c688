"""Puts the table where README has it: between two comments, which stay."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BEGIN", "END", "MarkerError", "check", "replaced", "rewrite"]

BEGIN, END = "<!-- table -->", "<!-- end of table -->"


class MarkerError(ValueError):
    """The file does not have both comments, in order and once."""


def replaced(text: str, table: str) -> str:
    """`text` with `table` between the comments, in place of what is there.

    Raises:
        MarkerError: they are not there, once and in order.
    """
    before, begin, rest = text.partition(BEGIN + "\n")
    _, end, after = rest.partition(END + "\n")
    if not (begin and end) or BEGIN in rest or END in before + after:
        raise MarkerError(f"one line {BEGIN} and after it one line {END} are needed")
    return f"{before}{BEGIN}\n{table.strip()}\n{END}\n{after}"


def check(file: Path) -> None:
    """Raises what `rewrite` would raise."""
    _rewritten(file, "")


def rewrite(file: Path, table: str) -> None:
    """Changes the file.

    Raises:
        MarkerError: names the file, which is as it was.
        OSError: it cannot be read or written.
    """
    file.write_text(_rewritten(file, table))


def _rewritten(file: Path, table: str) -> str:
    try:
        return replaced(file.read_text(), table)
    except MarkerError as error:
        raise MarkerError(f"{file}: {error}") from None
