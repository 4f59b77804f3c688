"""A report as its rows, and these as a text for a terminal and as the page docs/results.md. Pure.

The terminal shows goals, which are for those who develop wagma; the page does not.
"""

from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wagma.units import size_text

from . import cost_rows, ratio_rows, scenario_rows
from .plan import ALONE, LARGE, ROWS
from .row import Compared, Report, Row, spread

# ---- rows ----------------------------------------------------------------------------------------

MAKERS: dict[str, Callable[[Report], Iterator[Row]]] = {
    **{row: partial(ratio_rows.beside_mpi, group=row) for row in (*LARGE, "small")},
    **{row: partial(ratio_rows.over_mpi, group=row) for row in ALONE},
    "cost": cost_rows.cost,
    "arrival": ratio_rows.arrival,
    "grace": scenario_rows.grace,
    "straggler": scenario_rows.straggler,
    "iallreduce": scenario_rows.iallreduce,
    "overlap": scenario_rows.overlap,
    "k-of-p": scenario_rows.k_of_p,
    "mpi-straggler": scenario_rows.straggler_over_mpi,
    "mpi-idle": cost_rows.idle,
    "passive": cost_rows.passive,
    "memory": cost_rows.memory,
    "binding": cost_rows.binding,
}


def assemble(report: Report) -> list[Row]:
    """Return all rows for which there are samples, in the order of ROWS."""
    return [row for group in ROWS if group in report["rows"] for row in MAKERS[group](report)]


def failures(report: Report) -> list[str]:
    """Return the launches that failed, and the first wrong result of everything measured."""
    found = list(report["failed"])

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("wrong"):
                found.append(f"{node['wrong']} wrong results; {node['first_wrong']}")
            for value in node.values():
                visit(value)
        elif isinstance(node, list) and node and isinstance(node[0], dict | list):
            for value in node:
                visit(value)

    visit(report["launches"])
    visit(report["alone"])
    return found


# ---- both ----------------------------------------------------------------------------------------


def _environment(report: Report, *, commit: bool) -> Iterator[str]:
    """Yield a line for each of the machine, the versions and the launches."""
    e = report["environment"]
    load = ", ".join(f"{value:.2f}" for value in e["load_average"])
    yield (
        f"{e['cpu']}, {e['cores']} cores, {e['memory_bytes'] / 2**30:.0f} GiB, "
        f"Linux {e['kernel']}; load average at start {load}; {e['time']}."
    )
    tree = f" ({e['commit'] or 'no repository'})" if commit else ""
    yield (
        f"wagma {e['wagma']}{tree}, Python {e['python']}, numpy {e['numpy']}, mpi4py {e['mpi4py']}."
    )
    for launch in report["launches"]:
        first = launch["by_rank"][0]
        library = " ".join(first["library"].partition(",")[0].split())
        cores = [rank["affinity"] for rank in launch["by_rank"]]
        where = f"on cores {cores}" if launch["bound"] else "not bound"
        if trips := launch.get("round_trips_ns"):
            where += (
                f", a cache line goes from one to the other and back in {median(trips):.0f} ns "
                f"({min(trips):.0f} to {max(trips):.0f})"
            )
        sizes = ", ".join(dict.fromkeys(size_text(case["bytes"]) for case in launch["cases"]))
        yield (
            f"{launch['ranks']} ranks, {where}: {library}, THREAD_"
            f"{first['thread_level'].upper()}{': ' + sizes if sizes else ''}."
        )


# ---- a terminal ----------------------------------------------------------------------------------

WIDTH = 1000  # no row is cut or wrapped; tables are only as wide as their longest row
COLUMNS = ("what", "ranks", "goal", "measured", "", "median [p10, p90]")


def text(report: Report, rows: list[Row]) -> str:
    """Return the environment, the table with goals, and what was left out."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for column in COLUMNS:
        table.add_column(column, no_wrap=True, justify="right" if column == "ranks" else "left")
    for row in rows:
        cells = (row.what, str(row.ranks), row.goal, row.measured, row.verdict, row.details)
        table.add_row(*map(escape, cells))
    file = StringIO()
    Console(file=file, width=WIDTH, highlight=False, markup=False, soft_wrap=True).print(table)
    shown = (line.rstrip() for line in file.getvalue().splitlines())
    left_out = [f"Left out: {reason}." for reason in report["left_out"]]
    return "\n".join([*_environment(report, commit=True), "", *shown, *left_out]) + "\n"


# ---- the page ------------------------------------------------------------------------------------

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


def page(report: Report, rows: list[Row]) -> str:
    """Return the page: the machine, a table for each section, and what was left out."""
    lines = [INTRODUCTION, "## The machine", ""]
    lines += [f"- {line}" for line in _environment(report, commit=False)]
    for title, groups in SECTIONS.items():
        if chosen := [row for row in rows if row.group in groups]:
            lines += ["", f"## {title}", "", *_table(chosen)]
    lines += [f"\nLeft out: {reason}." for reason in report["left_out"]]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> Iterator[str]:
    compared = [(row, row.compared) for row in rows if row.compared]
    lines: list[tuple[str, ...]]
    if len(compared) == len(rows):
        lines = [("what", "ranks", "wagma", "MPI", "", "late", "MPI / wagma")]
        lines += [_ratio(row, found) for row, found in compared]
    else:
        lines = [("what", "ranks", "measured", "")]
        lines += [(row.what, str(row.ranks), row.measured, row.details) for row in rows]
    yield _line(*lines[0])
    yield "|" + "---|" * len(lines[0])
    for cells in lines[1:]:
        yield _line(*cells)


def _ratio(row: Row, found: Compared) -> tuple[str, ...]:
    mpi = f"{found.launch.partition(' (')[0]}, {found.form.removeprefix('MPI_Allreduce ')}"
    late = f"{found.late_share:.0%}"
    times = spread(found.wagma), spread(found.mpi)
    return (row.what, str(row.ranks), *times, mpi, late, f"{found.ratio:.2f}")


def _line(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |".replace("|  |", "| |")


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
