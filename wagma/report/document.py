"""What a report consists of: sections with text, plots and tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table: `small` stands below `text`, in small letters."""

    text: str
    small: str = ""


Row: TypeAlias = tuple[str | Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table; the first cell of every row is the row's header."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def wide(self) -> bool:
        """It does not fit beside a plot."""
        return len(self.head) > 5


def table(caption: str, head: tuple[str, ...], rows: Iterable[Row]) -> Table:
    """Return a table whose cells may be texts."""
    cells = tuple(
        tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows
    )
    return Table(caption, head, cells)


@dataclass(frozen=True)
class Plot:
    """A plot that can be drawn."""

    name: str  # of letters and dashes; `sections` numbers the plots of one name
    alt: str  # what it shows, for those who do not see it
    draw: Callable[[Figure], None]  # into an empty figure
    height: float = 3.3  # in inches
    wide: bool = False  # over the whole page; it can be scrolled where the page is narrow


@dataclass(frozen=True)
class Part:
    """A plot with its table and the files that it was made of."""

    title: str
    text: tuple[str, ...] = ()
    plot: Plot | None = None
    tables: tuple[Table, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section; `name` is its anchor in the page, which shows it if it has parts."""

    name: str
    title: str
    parts: tuple[Part, ...]
    text: tuple[str, ...] = ()
