"""Tables of text: aligned for a terminal, or in Markdown. Pure."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header, the first: titles to the left, all other columns to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for title, *cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([title.ljust(widths[0]), *padded]))
    lines.insert(1, "-" * len(lines[0]))
    return "".join(f"{line}\n" for line in lines)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a header, the first, as documents have them."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
