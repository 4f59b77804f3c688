"""Runs everything that was asked for, and collects what the ranks measured."""

import os
import platform
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from typing import Any

from wagma.memory import room

from ..environment import command_line, commit, cpu
from ..scenarios import alone
from ..scenarios import plan as scenarios
from . import launch, plan
from .row import Report

MIB = 1 << 20
# Options that are part of the report.
ASKED = ("rows", "ranks", "mpi_ranks", "small", "large", "over_mpi")


def collect(asked: Namespace) -> Report:
    """Measure what the options of the command ask for.

    The report has what was left out and what failed as well.
    """
    environments, left_out = launch.environments(asked.environments or launch.defaults())
    report: Report = {
        "environment": _environment(),
        **{name: getattr(asked, name) for name in ASKED},
        "training": asdict(scenarios.training(asked.quick)),
        "k-of-p": asdict(scenarios.fastest(asked.quick)),
        "posted": {kind: asdict(plan.posted(kind, asked.quick, None)) for kind in plan.POSTED},
        "left_out": left_out,
        "failed": [],
        "launches": [],
        "alone": {},
    }
    _collect_alone(asked, report)
    only_mpi = [ranks for ranks in asked.mpi_ranks if ranks not in asked.ranks]
    for ranks in (*asked.ranks, *(only_mpi if set(plan.ALONE) & set(asked.rows) else ())):
        _collect_ranks(asked, report, environments, ranks)
    if not environments:
        report["failed"].append("no MPI was found: " + "; ".join(left_out))
    return report


def _collect_ranks(
    asked: Namespace, report: Report, environments: list[launch.Environment], ranks: int
) -> None:
    """Collect what all launches of so many ranks measure."""
    bound = ranks <= _cores()
    # MPICH spins: with more ranks than cores a collective can take seconds.
    usable = [e for e in environments if bound or e.mpi != "mpich"]
    report["left_out"] += [
        f"{ranks} ranks, MPICH: it spins, which takes seconds with {_cores()} cores"
        for e in environments
        if e not in usable
    ]
    once, everywhere = (
        [name for name in names if name in asked.rows]
        for names in (plan.SCENARIOS, (*plan.POSTED, *plan.OVER_MPI))
    )
    once = once if ranks == asked.ranks[-1] else []
    everywhere = everywhere if ranks in asked.ranks else []
    compared = ranks in asked.ranks and not plan.COMPARED.keys().isdisjoint(asked.rows)
    # Without another MPI the scenarios of wagma alone can run under MPICH.
    for environment in usable or environments[:1]:
        with_mpi = environment in usable
        levels = ["multiple"]
        if environment.mpi == "mpich" and with_mpi and compared:
            levels.append("single")
        for level in levels:
            scenarios = [*once, *(everywhere if level == "multiple" else [])]
            _launch(asked, report, environment, ranks, level, scenarios, bound, with_mpi)
            once = []


def _launch(
    asked: Namespace,
    report: Report,
    environment: launch.Environment,
    ranks: int,
    level: str,
    scenarios: list[str],
    bound: bool,
    with_mpi: bool,
) -> None:
    """Launch ranks, if there is anything to measure."""
    over_mpi = ranks in asked.mpi_ranks and level == "multiple"
    cases, left_out = plan.cases(
        asked.rows if ranks in asked.ranks else tuple(plan.ALONE.keys() & asked.rows),
        ranks,
        asked.small,
        asked.large,
        asked.over_mpi if over_mpi else (),
        with_mpi=with_mpi,
        quick=asked.quick,
        room=room(),
    )
    report["left_out"] += [reason for reason in left_out if reason not in report["left_out"]]
    if not cases and not scenarios:
        return
    _progress(f"{ranks} ranks, {environment.mpi}, THREAD_{level.upper()}")
    part = {"cases": [asdict(case) for case in cases]}
    task = part | {
        "scenarios": scenarios,
        "quick": asked.quick,
        "with_mpi": with_mpi,
        "bound": bound,
        "corrupt": asked.corrupt,
    }
    try:
        measured = launch.run(environment, ranks, bound, level, task, asked.timeout)
    except launch.LaunchError as error:
        report["failed"].append(str(error))
        return
    head = {"mpi": environment.mpi, "ranks": ranks, "bound": bound}
    report["launches"].append(head | part | measured)


def _collect_alone(asked: Namespace, report: Report) -> None:
    """Collect the rows that need no MPI; 4 ranks, or the most that were asked for."""
    bytes_ = (1 if asked.quick else 16) * MIB

    def memory(quorum_all: bool) -> dict[str, Any]:
        return alone.memory(bytes_, max(asked.ranks), quorum_all=quorum_all)

    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "passive": lambda: alone.passive(0.5 if asked.quick else 2.0),
        "memory": lambda: {'quorum="all"': memory(True), "quorum=1": memory(False)},
        "binding": lambda: alone.binding(10 if asked.quick else 100, 2000),
    }
    try:
        for row, measure in measures.items():
            if row in asked.rows:
                _progress({"passive": "passivity"}.get(row, row))
                report["alone"][row] = measure()
    except (RuntimeError, OSError) as error:
        report["failed"].append(f"without MPI: {error}")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _environment() -> dict[str, Any]:
    """Return the machine, the software and the load at this moment."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": command_line(),
        "cpu": cpu(),
        "cores": _cores(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("wagma", "numpy", "mpi4py")},
        "commit": commit(),
    }


def _progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
