"""What was measured, as one page of HTML that can be mailed.

It takes what it finds in a folder and the folders in it: JSON of the benchmarks, of trainings and
of the demo, and timelines. The page refers to nothing outside of itself; each of its plots is a
PNG, too. docs/report.md says what is in it.

    mpiexec -n 4 python -m wagma bench skew --format json > results/skew.json
    mpiexec -n 4 python -m wagma demo --json results/demo.json
    python -m wagma report results
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch.files import write_file
from wagma.launch.packages import missing
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.report.page import Report
    from wagma.report.records import Found

SUMMARY = "make one page of HTML from the benchmarks, trainings and timelines of a folder"
ON_RANK_0 = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="folder of the files; nothing else is read")
    add("--out", type=Path, metavar="FILE", help="the page (default: report.html in DIR)")
    add("--title", help="title of the page (default: wagma, and the name of DIR)")
    pictures = parser.add_mutually_exclusive_group()
    pictures.add_argument(
        "--png",
        type=Path,
        metavar="FOLDER",
        help="where the plots go (default: beside the page, named after it: report-png)",
    )
    pictures.add_argument("--no-png", action="store_true", help="write the page alone")
    add(
        "--strict",
        action="store_true",
        help="fail if a file cannot be used; without this it is named and left out",
    )


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Read, draw and write."""
    if said := missing("jinja2", "jsonschema", "matplotlib"):
        parser.error(said)
    folder: Path = arguments.folder
    if not folder.is_dir():
        what = "is a file: name the folder that it is in" if folder.exists() else "does not exist"
        parser.error(f"argument DIR: {folder} {what}")
    if arguments.out and arguments.out.suffix.lower() == ".json":
        parser.error(
            f"argument --out: {arguments.out} is no name of a page, but of results: *.html"
        )
    found = _read(arguments, parser)

    from wagma.report.formats import clean
    from wagma.report.page import report

    title = clean(arguments.title or f"wagma: {folder.resolve().name}")
    made = report(found, title, pictures=not arguments.no_png)
    out: Path = arguments.out or folder / "report.html"
    beside = arguments.png or out.with_name(f"{out.stem}-png")
    pictures = None if arguments.no_png or not made.plots else beside
    try:
        _write(made, out, pictures)
    except OSError as error:
        parser.error(f"{error.filename} cannot be written: {error.strerror}")
    where = f", {plural(len(made.plots), 'picture')} in {pictures}" if pictures else ""
    files = plural(len(found.sources), "file")
    sys.stdout.write(f"{out}: {out.stat().st_size / 1e3:.0f} kB, {files}{where}\n")
    return 0


def _read(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> Found:
    """Return what the folder has; end the program if that is nothing, or with --strict not all."""
    from wagma.report.reading import KINDS, read

    found = read(arguments.folder)
    skipped = [f"{each.path} is left out: {each.why}" for each in found.skipped]
    if arguments.strict and skipped:
        parser.error("; ".join(skipped))
    for line in skipped:
        sys.stderr.write(f"{parser.prog}: {line}\n")
    if not found.sources:
        looked = "\n".join(f"  {kind}: {command}" for kind, command in KINDS.items())
        parser.error(
            f"argument DIR: {arguments.folder} has nothing to report; looked for .json files of\n"
            f"{looked}"
        )
    return found


def _write(made: Report, out: Path, pictures: Path | None) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, made.html)
    if pictures is None:
        return
    pictures.mkdir(parents=True, exist_ok=True)
    for name, plot in made.plots.items():
        if plot.png is not None:
            write_file(pictures / f"{name}.png", plot.png)
