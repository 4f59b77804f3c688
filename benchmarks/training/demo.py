"""Trains on handwritten digits while two of four ranks are delayed, and compares algorithms.

    mpiexec -n 4 python -m wagma demo

This is `python -m wagma bench training` with other defaults and with a conclusion in words. At
every step two ranks, drawn anew, sleep for 50 ms: the imbalance of the paper's experiments. All
algorithms train the same model on the same batches with the same delays, one after the other. At
the end there is a table, and a picture of accuracy over wall time and of what every rank waited.
"""

import argparse
from dataclasses import replace
from statistics import fmean
from textwrap import fill
from typing import Any

from wagma.launch.agreement import refuse as refuse
from wagma.units import plural

from . import command
from .settings import Settings

SUMMARY = "train while ranks are delayed, synchronously and with wait-avoiding averaging"

PICTURE = "out/demo.png"
DELAY = 0.05  # seconds by which a rank is delayed
DELAYED = "paper:{}:" + f"{DELAY:g}"
PRESET: dict[str, Any] = {
    "algorithms": "allreduce,local10,wagma,wagma-nosync",
    "imbalance": DELAYED.format(2),
    "steps": 200,
    "picture": PICTURE,
}
# What the table shows of the training benchmark's, by how the titles begin.
SHOWN = (
    *("all steps", "samples/s", "step on time", "waited", "late", "consensus distance"),
    *("test accuracy", "s to"),
)
COMPARED = ("wall_seconds", "waited_seconds", "consensus_distance")
NEAR = 0.1  # times that differ by less are called equal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the training benchmark, with the demo's defaults."""
    command.add_arguments(parser)
    parser.set_defaults(**PRESET)
    parser.epilog = (
        f"The demo trains {PRESET['steps']} steps and draws {PRESET['picture']}, unless --steps "
        f"and --picture say\notherwise.\n\n{parser.epilog}"
    )


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Train on the ranks of COMM_WORLD; return the exit status."""
    whole = arguments.markdown or arguments.per_seed
    return command.run_preset(arguments, parser, command.printed(arguments) if whole else text, fit)


def fit(settings: Settings, size: int) -> Settings:
    """Return the settings; unless others were asked for, with as many delayed ranks as can be."""
    if settings.imbalance == PRESET["imbalance"] and size < 3:
        return replace(settings, imbalance=DELAYED.format(1) if size == 2 else "none")
    return settings


def text(result: dict[str, Any]) -> str:
    """Return the table and what it says, in words."""
    from . import table

    said = [fill(line, table.WIDTH) for line in (*_conclusions(result), *_notes(result))]
    return table.rows(result, SHOWN) + "\n" + "".join(f"{line}\n" for line in said)


# ---- in words ------------------------------------------------------------------------------------


def _conclusions(result: dict[str, Any]) -> list[str]:
    runs = _means(result["runs"])
    said = []
    if "wagma" in runs and "allreduce" in runs:
        wagma, allreduce = runs["wagma"]["wall_seconds"], runs["allreduce"]["wall_seconds"]
        said.append(
            f"AllreduceSGD waits for the slowest rank at every step. WAGMA averages what is there: "
            f"{_compared(wagma, allreduce)} ({wagma:.1f} s, {allreduce:.1f} s)."
        )
    if "wagma" in runs and "local10" in runs:
        said += _against_local(runs["wagma"], runs["local10"])
    if "wagma-nosync" in runs:
        run = runs["wagma-nosync"]
        said.append(
            "Without synchronisation WAGMA waits for nobody: each rank waited "
            f"{run['waited_seconds']:.2f} s, and all steps took {run['wall_seconds']:.1f} s."
        )
    return said


def _means(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the figures that are compared, of each algorithm the mean of its seeds."""
    found: dict[str, dict[str, float]] = {}
    for name in {run["algorithm"]: None for run in runs}:
        of = [run for run in runs if run["algorithm"] == name]
        found[name] = {key: fmean(run[key] or 0.0 for run in of) for key in COMPARED}
    return found


def _against_local(wagma: dict[str, float], local: dict[str, float]) -> list[str]:
    faster = _compared(wagma["wall_seconds"], local["wall_seconds"])
    said = (
        f"LocalSGD(10) averages at every tenth step only. WAGMA, which mixes models in between, is "
        f"{faster} ({wagma['wall_seconds']:.1f} s, {local['wall_seconds']:.1f} s)"
    )
    near, far = wagma["consensus_distance"], local["consensus_distance"]
    if not near or not far:
        return [f"{said}."]
    closer = "closer together" if near < far else "further apart"
    return [
        f"{said}; its models are {closer}: {100 * near:.1f} % from their mean, not "
        f"{100 * far:.1f} %.",
        "So WAGMA wins over LocalSGD where models must not drift apart, or where no step may wait "
        "for all ranks. Where neither matters, LocalSGD is simpler.",
    ]


def _compared(own: float, other: float) -> str:
    if abs(own - other) <= NEAR * other:
        return "about as fast"
    return f"{other / own:.1f}x as fast"


def _notes(result: dict[str, Any]) -> list[str]:
    ranks = result["environment"]["ranks"]
    said = [
        f"Step on time: of a rank that was not delayed itself. Consensus distance: of the models "
        f"of {plural(ranks, 'rank')} from their mean, before they are averaged.",
        *result["environment"]["warnings"],
    ]
    if ranks == 1:
        said.append("One rank waits for nobody: try mpiexec -n 4 python -m wagma demo")
    return said
