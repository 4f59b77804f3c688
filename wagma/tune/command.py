"""Measures how data is exchanged fastest over messages between these ranks.

Handles over messages (transport="mpi") exchange small arrays in few messages and large ones in
parts, cut into chunks. Up to which size, and how large the chunks are best, depends on the MPI, on
the number of ranks and on the machine. All of it is tried out with the ranks of this run, and
written to the user's cache, where handles of as many ranks, with the same MPI and processor, find
it. docs/schedules.md says what is compared.

    mpiexec -n 4 python -m wagma tune
"""

from __future__ import annotations

import argparse
import errno
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wagma.tune.search import Found

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "measure how ranks exchange data over messages fastest, for handles to use"

SMALLEST = 64 << 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options to its parser."""
    add = parser.add_argument
    add(
        "--largest",
        type=_size,
        default=8 << 20,
        metavar="SIZE",
        help="of the arrays that are tried, such as 64MiB (default: 8MiB)",
    )
    add(
        "--seconds",
        type=_seconds,
        default=0.2,
        metavar="S",
        help="for each of about fifty points (default: %(default)s)",
    )
    add(
        "--file",
        type=Path,
        metavar="FILE",
        help="where to write (default: wagma/tune.json in XDG_CACHE_HOME or ~/.cache, which is "
        "where handles look)",
    )
    add("--dry-run", action="store_true", help="measure and print, but write nothing")
    add(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help="a bar on rank 0; auto: when standard error is a terminal, which it is not under "
        "most mpiexec (default: %(default)s)",
    )


def _size(text: str) -> int:
    from wagma.doctor.sizes import parse_size, size_text

    try:
        size = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not SMALLEST <= size <= 1 << 30:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be {size_text(SMALLEST)} to {size_text(1 << 30)}"
        )
    return size


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 and at most 60 seconds")
    return value


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Measures with the ranks of COMM_WORLD; returns the exit status."""
    from mpi4py import MPI

    from wagma.collectives import transport, tuning
    from wagma.tune.search import points, search
    from wagma.tune.shown import bar

    comm = MPI.COMM_WORLD
    if comm.size == 1:
        parser.error("one rank exchanges nothing: start several, mpiexec -n 4 python -m wagma tune")
    wrong, file = "", None
    try:
        transport.load()
        if comm.rank == 0 and not arguments.dry_run:  # before seconds are spent
            file = _writable(arguments.file or tuning.cache_file())
    except (ImportError, OSError, RuntimeError) as error:
        wrong = str(error)
    wrong = next(filter(None, comm.allgather(wrong)), "")
    if wrong:
        parser.error(wrong)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    on_a_node = node.Get_size()
    node.Free()
    shown = comm.rank == 0 and (
        arguments.progress == "always" or (arguments.progress == "auto" and sys.stderr.isatty())
    )
    with bar(points(comm.size, arguments.largest), shown) as advance:
        found = search(comm, arguments.largest, arguments.seconds, advance)
    if comm.rank == 0:
        under = tuning.key(comm.size, on_a_node)
        sys.stdout.write(_text(found, under))
        if file is not None:
            tuning.write(file, under, found.schedule)
            sys.stdout.write(f"Written to {file}\n")
    return 0


def _writable(file: Path) -> Path:
    """The file, which can be written.

    Raises:
        OSError: it cannot.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
    except OSError as error:
        raise OSError(
            f"cannot write {file}: {error.strerror}; choose another --file, or --dry-run"
        ) from error
    return file


def _text(found: Found, under: str) -> str:
    from wagma.doctor.sizes import size_text

    lines = [under, "", f"{'array':>10} {'few messages':>14} {'parts':>12}   us, median of calls"]
    for size in sorted(found.few):
        few, parts = found.few[size] * 1e6, found.parts[size] * 1e6
        marks = ("*", "") if size <= found.schedule.schedule_switch else ("", "*")
        lines.append(
            f"{size_text(size):>10} {few:>13.1f}{marks[0]:1} {parts:>11.1f}{marks[1]:1}".rstrip()
        )
    lines.append("")
    lines.append(
        f"few messages up to {size_text(found.schedule.schedule_switch)}, chunks of "
        f"{size_text(found.schedule.schedule_chunk)}, parts sent to all at once in groups of up to "
        f"{found.schedule.schedule_direct}"
    )
    return "\n".join(lines) + "\n"
