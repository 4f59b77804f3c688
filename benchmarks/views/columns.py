"""Tables in the form of OSU Micro-Benchmarks: sizes to the left, everything else to the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["WIDTH", "Column", "header", "row", "wide"]

T = TypeVar("T")

SIZE_WIDTH = 10
WIDTH = 18


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table whose rows are made of a T.

    Attributes:
        name: in the header.
        cell: of a row.
        width: of the cells; of the header, too, unless the name is longer.
    """

    name: str
    cell: Callable[[T], str]
    width: int = WIDTH


def wide(name: str, cell: Callable[[T], str]) -> Column[T]:
    """A column that is at least two spaces from its neighbour, whatever its name."""
    return Column(name, cell, max(WIDTH, len(name) + 2))


def header(columns: Sequence[Column[T]]) -> str:
    """The line above the rows, with its end."""
    names = "".join(column.name.rjust(column.width) for column in columns)
    return f"{'# Size':<{SIZE_WIDTH}}{names}\n"


def row(size: int, columns: Sequence[Column[T]], value: T) -> str:
    """A row, with its end."""
    cells = "".join(column.cell(value).rjust(column.width) for column in columns)
    return f"{size:<{SIZE_WIDTH}}{cells}\n"
