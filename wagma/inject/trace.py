"""Delays that a file lists.

The file is text in UTF-8. Its first line is ``step,rank,seconds``, and each further one a delay:

    step,rank,seconds
    0,2,0.32      # rank 2 is delayed by 320 ms at step 0
    3,0,0.05

Steps count from 0. What is not listed is no delay. Lines may be in any order and end with a comment
after ``#``; blank lines and lines with only a comment are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count, check_number, check_rank
from wagma.inject.draws import Delays, Floats

HEADER = "step,rank,seconds"
ENDS = ("cycle", "once")

LAST_STEP = 1 << 53

# Step, rank, seconds.
Entry = tuple[int, int, float]


def parse_trace(text: str, size: int, source: str) -> tuple[Entry, ...]:
    """Return the delays in `text`, sorted; `source` names it in errors.

    Raises:
        ValueError: for `size` ranks this is no trace; the message names source and line.
    """
    lines = _lines(text)
    number, header = next(lines, (1, ""))
    if [column.strip() for column in header.split(",")] != HEADER.split(","):
        raise ValueError(f"{source}, line {number}: the header is {header!r}, not {HEADER!r}")
    entries: dict[tuple[int, int], float] = {}
    places: dict[tuple[int, int], int] = {}
    for number, line in lines:
        try:
            step, rank, seconds = _entry(line, size)
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}") from None
        key = (step, rank)
        if key in entries:
            raise ValueError(
                f"{source}, line {number}: step {step} of rank {rank} is in line {places[key]} too"
            )
        entries[key] = seconds
        places[key] = number
    if not entries:
        raise ValueError(f"{source}, line {number}: there is no delay after the header")
    return tuple((step, rank, entries[step, rank]) for step, rank in sorted(entries))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbers from 1, and the lines that hold something, without comments."""
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0].strip()
        if content:
            yield number, content


def _entry(line: str, size: int) -> Entry:
    values = line.split(",")
    if len(values) != len(HEADER.split(",")):
        raise ValueError(f"{line!r} has {len(values)} columns, not {HEADER!r}")
    step, rank, seconds = (value.strip() for value in values)
    return (
        check_count("step", _integer("step", step), 0, LAST_STEP),
        check_rank(_integer("rank", rank), size),
        check_number("seconds", _number("seconds", seconds)),
    )


def _integer(column: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}: an integer is needed") from None


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}: a number is needed") from None


def _read(path: str) -> str:
    content = Path(path).read_bytes()
    try:
        return content.decode("utf-8-sig")  # spreadsheets begin a file with a byte order mark
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {number}: this is not text in UTF-8") from None


@dataclass(frozen=True)
class Trace(Delays):
    """The delays of a file, see `wagma.inject.trace`; it is read once, when this is made.

    Attributes:
        size: ranks P.
        path: of the file.
        end: what follows the last step listed: "cycle" begins again with step 0, "once" has no
            more delays.
        entries: what the file says, sorted by step and rank.
    """

    name = "trace"
    size: int
    path: str
    end: str = "cycle"
    entries: tuple[Entry, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_count("size", self.size, 1)
        if self.end not in ENDS:
            raise ValueError(f"end is {self.end!r}: one of {', '.join(ENDS)} is needed")
        object.__setattr__(self, "path", str(self.path))
        entries = parse_trace(_read(self.path), self.size, self.path)
        object.__setattr__(self, "entries", entries)

    def describe(self) -> str:
        """Return a phrase that follows "P ranks, "."""
        return f"delayed as {self.path} says"

    @cached_property
    def _rows(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """Return the steps listed, ascending, and their delays, with a row of zeros at the end."""
        steps, rows = np.unique([step for step, _, _ in self.entries], return_inverse=True)
        table = np.zeros((len(steps) + 1, self.size))
        table[rows, [rank for _, rank, _ in self.entries]] = [last for _, _, last in self.entries]
        return steps, table

    def _draw(self, steps: int, first: int) -> Floats:
        listed, table = self._rows
        length = int(listed[-1]) + 1
        wanted = np.arange(steps) + (first % length if self.end == "cycle" else first)
        if self.end == "cycle":
            wanted %= length
        rows = np.searchsorted(listed, wanted)
        found = listed[np.minimum(rows, len(listed) - 1)] == wanted
        return table[np.where(found, rows, len(listed))]
