"""Timelines of ranks: merged into one file for a viewer, or summed up.

Each rank writes its own where the program runs with WAGMA_TRACE=dir. docs/timeline.md says what is
in them and what to look for.

    WAGMA_TRACE=traces mpiexec -n 4 python train.py
    python -m wagma trace merge traces -o merged.json     # then open it at https://ui.perfetto.dev
    python -m wagma trace summary traces
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch.files import write_file
from wagma.launch.packages import missing
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.trace.files import Timeline

SUMMARY = "merge or sum up the timelines that ranks wrote (WAGMA_TRACE)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be done with timelines to the command's parser."""
    kinds = parser.add_subparsers(title="what to do", metavar="WHAT", required=True)
    merge = kinds.add_parser(
        "merge",
        help="write one file with all ranks, on one clock, for Perfetto or chrome://tracing",
        description="Writes one timeline with all ranks, on one clock.",
    )
    _add_files(merge)
    merge.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("merged.json"),
        metavar="FILE",
        help="file to write (default: %(default)s)",
    )
    merge.set_defaults(run=_merge, parser=merge)
    summary = kinds.add_parser(
        "summary",
        help="print each rank's shares of computing, waiting and reducing, and its late calls",
        description="Prints, per rank, what its time went into, and how often it was late.",
    )
    _add_files(summary)
    summary.add_argument("--json", action="store_true", help="print the rows as JSON")
    summary.set_defaults(run=_summary, parser=summary)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="DIR|FILE",
        help="the folder given as WAGMA_TRACE, or files of one run",
    )


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Refuse a command line without what to do: the parsers of `merge` and `summary` run."""
    del arguments
    parser.error("nothing to do")


def _load(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Timeline]:
    """Return the files, checked; end the program if there is something wrong with them."""
    from wagma.trace.files import TraceError, check_one_run, find, read

    try:
        timelines = [read(path) for path in find(arguments.files)]
        check_one_run(timelines)
    except TraceError as error:
        parser.error(str(error))
    for note in _notes(timelines):
        sys.stderr.write(f"{parser.prog}: {note}\n")
    return timelines


def _notes(timelines: list[Timeline]) -> Iterator[str]:
    """Yield what a reader should know about the files."""
    from wagma.trace.clocks import align
    from wagma.trace.files import missing_ranks

    missing = missing_ranks(timelines)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        yield f"no file of {', '.join(missing[:3])}{more}: killed, or on another host?"
    for timeline in timelines:
        if timeline.dropped:
            yield (
                f"{timeline.path}: the last {timeline.dropped} events are missing; raise "
                "WAGMA_TRACE_LIMIT"
            )
    offsets = align(timelines)
    if any(offset.error_ns is None for offset in offsets.values()):
        yield (
            "the clocks of the hosts were not compared by messages: they are aligned by the wall "
            "clocks, which may be milliseconds apart"
        )


def _merge(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from wagma.trace.clocks import align
    from wagma.trace.merge import merge

    timelines = _load(arguments, parser)
    output: Path = arguments.output
    for timeline in timelines:
        if output.exists() and output.samefile(timeline.path):
            parser.error(f"argument -o: {output} is one of the files to be merged: name another")
    merged = merge(timelines)
    try:
        write_file(output, json.dumps(merged))
    except OSError as error:
        parser.error(f"{output} cannot be written: {error.strerror}")
    events = sum(len(timeline.events) for timeline in timelines)
    errors = [offset.error_ns for offset in align(timelines).values() if offset.error_ns]
    exact = f", clocks aligned within {max(errors) / 1e3:.1f} us" if errors else ""
    read = f"{plural(events, 'event')} of {plural(len(timelines), 'file')}"
    sys.stdout.write(f"{output}: {read}{exact}; open it at ui.perfetto.dev\n")
    return 0


def _summary(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from dataclasses import asdict

    from wagma.trace.summary import summarize, table

    if not arguments.json and (said := missing("rich")):
        parser.error(f"{said}, or use --json")
    rows = summarize(_load(arguments, parser))
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    else:
        sys.stdout.write(table(rows))
    return 0
