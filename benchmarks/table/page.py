"""The table as the page docs/results.md: what one run measured, without goals."""

from __future__ import annotations

from collections.abc import Iterator

from .ratios import Compared
from .report import environment
from .row import Report, Row, spread

__all__ = ["requoted", "text"]

INTRODUCTION = """\
# Results

`make bench` measured this page in one run and wrote it. A time is the longest of the ranks in one
iteration, from a rank's own call on; the cells have its median over the iterations, and in brackets
its 10 % and 90 % quantiles. wagma and MPI run in the same processes, in turns, on inputs that are
rewritten before every call; every result is checked. MPI runs with THREAD_MULTIPLE, as mpi4py asks
for it. It is the fastest of the installed MPIs and of their forms (in place, two buffers), unless a
row names one. **MPI / wagma** is the quotient of the medians: **above 1 wagma is faster.** "late"
is the share of contributions that came after their version had run.
[measuring.md](measuring.md) says how each row is measured, [performance.md](performance.md) what
bounds it.
"""

# Each row of the table is in one of them.
SECTIONS = {
    "One node: all ranks in time": ("all", "private", "small", "quorum1", "out-of-place"),
    "One node: a rank comes late": ("arrival",),
    "One node: ranks that compute between calls": ("grace", "straggler", "iallreduce", "overlap"),
    "The fastest K of P ranks, beside theory": ("k-of-p",),
    "Over messages, on one node": ("mpi", "mpi-groups"),
    "Over messages: a rank sleeps, and what a thread takes": ("mpi-straggler", "mpi-idle"),
    "What a call costs": ("cost", "passive", "memory", "binding"),
}


def text(report: Report, rows: list[Row]) -> str:
    """Return the page: the machine, a table for each section, and what was left out."""
    lines = [INTRODUCTION, "## The machine", ""]
    lines += [f"- {line}" for line in environment(report, commit=False)]
    for title, groups in SECTIONS.items():
        if chosen := [row for row in rows if row.group in groups]:
            lines += ["", f"## {title}", "", *_table(chosen)]
    lines += [f"\nLeft out: {reason}." for reason in report["left_out"]]
    return "\n".join(lines) + "\n"


def requoted(text: str, page: str) -> str:
    """Return `text` with each table row that `page` has, too, as it is there.

    Rows are told apart by what was measured and on how many ranks. Headers stay.
    """
    rows = {_key(line): line for line in page.splitlines() if _is_row(line)}
    return "".join(
        rows.get(_key(line), line.rstrip("\n")) + "\n" if _is_row(line) else line
        for line in text.splitlines(keepends=True)
    )


def _is_row(line: str) -> bool:
    return line.startswith("| ") and not line.startswith("| what |")


def _key(line: str) -> tuple[str, ...]:
    return tuple(line.split(" | ")[:2])


def _table(rows: list[Row]) -> Iterator[str]:
    compared = [(row, row.compared) for row in rows if row.compared]
    if len(compared) == len(rows):
        yield from _lines("what", "ranks", "wagma", "MPI", "", "late", "MPI / wagma")
        for row, found in compared:
            yield _line(*_ratio(row, found))
    else:
        yield from _lines("what", "ranks", "measured", "")
        for row in rows:
            yield _line(row.what, str(row.ranks), row.measured, row.details)


def _ratio(row: Row, found: Compared) -> tuple[str, ...]:
    mpi = f"{found.launch.partition(' (')[0]}, {found.form.removeprefix('MPI_Allreduce ')}"
    late = f"{found.late_share:.0%}"
    times = spread(found.wagma), spread(found.mpi)
    return (row.what, str(row.ranks), *times, mpi, late, f"{found.ratio:.2f}")


def _lines(*header: str) -> Iterator[str]:
    yield _line(*header)
    yield "|" + "---|" * len(header)


def _line(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |".replace("|  |", "| |")
