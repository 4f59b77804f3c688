"""Measures how data is exchanged fastest over messages between these ranks, and what one takes.

Handles over messages (transport="mpi") exchange small arrays in few messages and large ones in
parts, cut into chunks. Up to which size, and how large the chunks are best, depends on the MPI, on
the number of ranks and on the machine. All of it is tried out with the ranks of this run, and
written to the user's cache, where handles of as many ranks, with the same MPI and processor, find
it. docs/tune.md says what is compared. LogGP's numbers of a message go to the same file, with
which `wagma simulate` and `wagma advise` predict: --network FILE.

    mpiexec -n 4 python -m wagma tune
"""

from __future__ import annotations

import argparse
import errno
import math
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch.agreement import refuse as refuse
from wagma.launch.options import add_progress, is_shown, reader
from wagma.launch.packages import missing
from wagma.units import parse_duration, parse_size, size_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

    from wagma.tune.loggp import LogGP
    from wagma.tune.search import Found, Times

SUMMARY = "measure how ranks exchange data over messages, for handles and simulations"

SMALLEST = 64 << 10
_WHERE = {"node": "on a node", "between": "to another node"}


@dataclass(frozen=True)
class Settings:
    """What all ranks are asked for."""

    largest: int  # bytes of an array
    time: float  # seconds for a point
    file: Path | None  # that is written; None: that of the user's cache
    dry_run: bool  # none is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    add = parser.add_argument
    add(
        "--largest",
        type=reader(_size),
        default=8 << 20,
        metavar="SIZE",
        help="largest array to try, such as 64MiB (default: 8MiB)",
    )
    add(
        "--time",
        type=reader(lambda text: parse_duration(text, 60.0)),
        default=0.2,
        metavar="TIME",
        help="how long to measure each of about sixty points, such as 1s (default: 200ms)",
    )
    add(
        "--file",
        type=Path,
        metavar="FILE",
        help="where to write (default: wagma/tune.json in XDG_CACHE_HOME or ~/.cache, which is "
        "where handles look)",
    )
    add("--dry-run", action="store_true", help="measure and print, but write nothing")
    add_progress(add, "a bar")


def _size(text: str) -> int:
    size = parse_size(text)
    if not SMALLEST <= size <= 1 << 30:
        raise ValueError(f"{text!r} must be {size_text(SMALLEST)} to {size_text(1 << 30)}")
    return size


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Measure with the ranks of COMM_WORLD; return the exit status."""
    from wagma.launch.together import on_world

    settings = Settings(arguments.largest, arguments.time, arguments.file, arguments.dry_run)
    return on_world(parser, lambda comm: _tune(comm, settings, arguments.progress))


def _tune(comm: MPI.Intracomm, settings: Settings, progress: str) -> int:
    from functools import partial

    from wagma.collectives import tuning
    from wagma.launch.agreement import InputError, agreed
    from wagma.launch.progress import bar
    from wagma.launch.together import abort_on_error, everywhere
    from wagma.tune.loggp import points as message_points
    from wagma.tune.measuring import default_schedule, measure, ranks_on_this_node
    from wagma.tune.messages import measure_messages, partners
    from wagma.tune.search import points, search

    if comm.size == 1:
        raise InputError(
            "one rank exchanges nothing: start several, mpiexec -n 4 python -m wagma tune"
        )
    settings = agreed(comm, settings)
    here = ranks_on_this_node(comm)
    everywhere(comm, lambda: _check(settings, comm.size, here))
    # By one rank for all, before seconds are spent: it writes, and shows the bar.
    file = everywhere(comm, lambda: _check_first(settings, progress) if comm.rank == 0 else None)
    shown = comm.rank == 0 and is_shown(progress)
    default = default_schedule(comm.size, here)
    others = partners(comm)
    count = points(comm.size, settings.largest) + len(others) * len(
        message_points(settings.largest)
    )
    with bar(count, visible=shown) as advance, abort_on_error(comm):
        found = search(
            comm.size, settings.largest, default, partial(measure, comm, settings.time), advance
        )
        messages = {
            where: measure_messages(comm, other, settings.time, settings.largest, advance)
            for where, other in others.items()
        }
    if comm.rank == 0:
        under = tuning.key(comm.size, here)
        sys.stdout.write(_text(found, under) + "".join(map(_line, messages.items())))
        if file is not None:
            tuning.write(file, under, found.schedule, {w: asdict(m) for w, m in messages.items()})
            sys.stdout.write(f"Written to {file}\n")
    return 0


def _check(settings: Settings, ranks: int, here: int) -> None:
    """Check what can be wrong on each rank.

    Raises:
        ImportError: there is no transport over MPI.
        ValueError: a variable of the environment is wrong, or memory is too small.
    """
    from wagma.collectives import transport
    from wagma.collectives.options import Options
    from wagma.memory import room
    from wagma.tune.search import memory

    transport.load()
    Options().with_environment()
    needed, free = here * memory(ranks, settings.largest), room().total
    if needed > free:
        raise ValueError(
            f"--largest {size_text(settings.largest)}: {here} ranks need {size_text(needed)} of "
            f"memory, and {size_text(free)} are free; choose a smaller one"
        )


def _check_first(settings: Settings, progress: str) -> Path | None:
    """Return the file that rank 0 writes; None: no file.

    Raises:
        ValueError: there can be no bar, no home directory is known, or --file names a file that
            `wagma tune` did not write.
        OSError: the file cannot be written.
    """
    from wagma.collectives import tuning

    if progress == "always" and (said := missing("rich")):
        raise ValueError(f"--progress always: {said}, or --progress never")
    if settings.dry_run:
        return None
    try:
        file = _writable(settings.file or tuning.cache_file())
    except RuntimeError as error:
        raise ValueError(f"{error} choose a --file, or --dry-run") from error
    if settings.file is not None:
        try:
            tuning.read(file, "")
        except ValueError as error:
            raise ValueError(
                f"--file {file} is not of wagma tune: {error}; choose another, or remove this one"
            ) from error
    return file


def _writable(file: Path) -> Path:
    """Return the file after checking that it can be written.

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
    from wagma.tune.search import at_once

    schedule = found.schedule
    lines = [under, ""]
    if found.direct:

        def is_halved(size: int) -> bool:
            return not at_once(size, found.ranks, schedule)

        lines += _columns("halved", found.halving, "to all", found.direct, is_halved)

    def is_small(size: int) -> bool:
        return size <= schedule.schedule_switch

    lines += _columns("few messages", found.few, "parts", found.parts, is_small)
    to_all = (
        f"parts of {size_text(schedule.schedule_part)} or more sent to all at once in groups of up "
        f"to {schedule.schedule_direct}"
    )
    lines.append(
        f"few messages up to {size_text(schedule.schedule_switch)}, chunks of "
        f"{size_text(schedule.schedule_chunk)}, {to_all}"
    )
    return "\n".join(lines) + "\n"


def _line(measured: tuple[str, LogGP]) -> str:
    where, numbers = measured
    once = numbers.latency + 2 * numbers.overhead
    rate = 1 / numbers.gap_per_byte if numbers.gap_per_byte else math.inf
    return (
        f"a message {_WHERE[where]}: {1e6 * once:.1f} us and {rate * 1e-9:.3g} GB/s; the next one "
        f"{1e6 * numbers.gap:.1f} us later; sums: {1e-9 / numbers.reduce_per_byte:.3g} GB/s\n"
    )


def _columns(
    first: str, times: Times, second: str, others: Times, is_first: Callable[[int], bool]
) -> list[str]:
    """Return lines with times by size in two columns, a star at the one in use."""
    lines = [f"{'array':>10} {first:>14} {second:>12}   us, median of calls"]
    for size in sorted(times):
        marks = ("*", "") if is_first(size) else ("", "*")
        before, after = times[size] * 1e6, others[size] * 1e6
        lines.append(
            f"{size_text(size):>10} {before:>13.1f}{marks[0]:1} {after:>11.1f}{marks[1]:1}".rstrip()
        )
    return [*lines, ""]
