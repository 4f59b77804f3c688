"""Makes figures of a paper again, from simulations with wagma's own functions.

For each figure there is a PNG, and one JSON file has the numbers of all. The same seed gives the
same numbers, but for times that are measured. docs/reproduction.md has what came out, beside the
paper's figures. Each method takes half a minute of one core, cannikin a whole one.

    python -m wagma reproduce dropcompute --out figures
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch.options import add_progress, integer, is_shown
from wagma.launch.packages import missing
from wagma.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from wagma.reproduce.picture import Numbers, Picture

    Claim = tuple[str, str, str]
    Claims = Callable[[dict[str, Numbers]], list[Claim]]

SUMMARY = "simulate the figures of a paper again"
ON_RANK_0 = True

# Each is a module of this package, with _ for -, with `PICTURES`. It may have `NEEDS`: the packages
# that it imports, beside matplotlib and scipy; and `CLAIMS`, which makes rows of claim, what the
# paper says and what came out, from the numbers of all figures.
METHODS = {
    "cannikin": "Figs. 5 and 7 to 10 of Cannikin (Nie et al., 2024)",
    "dropcompute": "Figs. 1, 3, 4, 13 and 14 of DropCompute (Giladi et al., 2023)",
    "fastest-k": "Figs. 1 to 6 of adaptive fastest-k SGD (Kas Hanna et al., 2022)",
    "ksync": "Figs. 5 to 9 of K-sync and K-async SGD (Dutta et al., 2018)",
}

_COLUMNS = ("claim", "paper", "here")


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
        help="folder for the figures and METHOD.json, made if needed",
    )
    add(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="seed of all draws (default: %(default)s)",
    )
    add(
        "--quick",
        action="store_true",
        help="fewer steps, workers and runs: about half the time, and noisy figures",
    )
    add_progress(add, "a bar")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Compute, draw and write."""
    method: str = arguments.method
    module = import_module(f"wagma.reproduce.{method.replace('-', '_')}")
    if said := missing("matplotlib", "scipy", *getattr(module, "NEEDS", ())):
        parser.error(said)
    pictures: tuple[Picture, ...] = module.PICTURES
    out: Path = arguments.out
    try:
        rows = _reproduce(method, pictures, getattr(module, "CLAIMS", None), arguments)
    except OSError as error:
        parser.error(f"{error.filename} cannot be written: {error.strerror}")
    if rows:
        lines = [_COLUMNS, ("---",) * 3, *rows]
        sys.stdout.write("".join(f"| {' | '.join(line)} |\n" for line in lines))
    sys.stdout.write(f"{out / method}.json, {plural(len(pictures), 'picture')} in {out}\n")
    return 0


def _reproduce(
    method: str, pictures: tuple[Picture, ...], claims: Claims | None, arguments: argparse.Namespace
) -> list[Claim]:
    """Compute, draw and write; return the rows of claims."""
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
    rows = claims(figures) if claims else []
    document = {
        "method": method,
        "wagma": version("wagma"),
        "seed": seed,
        "quick": quick,
        "figures": figures,
    }
    if rows:
        document["claims"] = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    write_file(out / f"{method}.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    return rows
