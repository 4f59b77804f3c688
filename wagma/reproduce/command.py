"""Makes figures of a paper again, from simulations with wagma's own functions.

For each figure there is a PNG, and one JSON file has the numbers of all. The same seed gives the
same numbers. docs/reproduction.md has what came out, beside the paper's figures. Each method takes
about half a minute of one core.

    python -m wagma reproduce dropcompute --out figures
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch.options import add_progress, integer, is_shown
from wagma.launch.packages import missing
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.reproduce.picture import Picture

__all__ = ["METHODS", "SUMMARY", "add_arguments", "run"]

SUMMARY = "figures of a paper, made again by simulation"

# Each is a module of this package, with _ for -, with `PICTURES`, and `NEEDS`: the packages that it
# imports, beside matplotlib and scipy.
METHODS = {
    "dropcompute": "Figs. 1, 3, 4, 13 and 14 of DropCompute (Giladi et al., 2023)",
    "fastest-k": "Figs. 1 to 6 of adaptive fastest-k SGD (Kas Hanna et al., 2022)",
    "ksync": "Figs. 5 to 9 of K-sync and K-async SGD (Dutta et al., 2018)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    add = parser.add_argument
    what = "; ".join(f"{name}: {text}" for name, text in METHODS.items())
    add("method", choices=METHODS, metavar="METHOD", help=what)
    add(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the figures and METHOD.json go; it is made",
    )
    add(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="of all draws (default: %(default)s)",
    )
    add(
        "--quick",
        action="store_true",
        help="fewer steps, workers and runs: about half the time, and noisy figures",
    )
    add_progress(add, "a bar")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Compute, draw and write; under a launcher only rank 0 does."""
    from wagma.launch.environment import launched_rank

    if launched_rank(os.environ) != 0:
        return 0
    method: str = arguments.method
    module = import_module(f"wagma.reproduce.{method.replace('-', '_')}")
    if said := missing("matplotlib", "scipy", *getattr(module, "NEEDS", ())):
        parser.error(said)
    pictures: tuple[Picture, ...] = module.PICTURES
    out: Path = arguments.out
    try:
        _reproduce(method, pictures, arguments)
    except OSError as error:
        parser.error(f"{error.filename} cannot be written: {error.strerror}")
    sys.stdout.write(f"{out / method}.json, {plural(len(pictures), 'picture')} in {out}\n")
    return 0


def _reproduce(method: str, pictures: tuple[Picture, ...], arguments: argparse.Namespace) -> None:
    import numpy as np

    from wagma.launch.files import check_writable, write_file
    from wagma.launch.progress import bar
    from wagma.reproduce.picture import plain, png

    out, seed, quick = arguments.out, arguments.seed, arguments.quick
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / f"{method}.json")
    figures = {}
    with bar(len(pictures), visible=is_shown(arguments.progress)) as advance:
        for picture in pictures:
            # A figure's draws do not depend on which others there are.
            rng = np.random.default_rng([seed, *picture.name.encode()])
            figures[picture.name] = plain(picture.compute(rng, quick))
            write_file(out / f"{picture.name}.png", png(picture, figures[picture.name]))
            advance()
    document = {
        "method": method,
        "wagma": version("wagma"),
        "seed": seed,
        "quick": quick,
        "figures": figures,
    }
    write_file(out / f"{method}.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
