"""The results as they are printed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from wagma.launch import tables
from wagma.report.heterogeneous import cells, notes

if TYPE_CHECKING:
    from .train import Epoch

WIDTH = 100  # characters of a line


def text(result: dict[str, Any]) -> str:
    """Return the table of a document with runs, and what has to be known beside it."""
    said = [*notes(result), *result["environment"]["warnings"]]
    lines = ["", *(fill(each, WIDTH) for each in said)]
    return tables.aligned(cells(result)) + "".join(f"{line}\n" for line in lines)


def markdown(result: dict[str, Any]) -> str:
    """Return the table as documents have it."""
    return tables.markdown([[row[0].strip(), *row[1:]] for row in cells(result)])


def line(label: str, epochs: Sequence[Epoch]) -> str:
    """Return what is told of a method as soon as it is done."""
    first, last = (1e3 * epochs[place].seconds for place in (0, -1))
    return f"{label}: {first:.0f} ms per step in the first epoch, {last:.0f} ms in the last"
