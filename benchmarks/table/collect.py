"""Runs everything that was asked for, and collects what the ranks measured."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from wagma.memory import room

from ..environment import command_line, commit, cpu
from ..scenarios import alone
from ..scenarios import plan as scenarios
from . import launch, plan
from .row import Report

__all__ = ["Asked", "collect"]

MIB = 1 << 20


@dataclass(frozen=True)
class Asked:
    """What to measure.

    Attributes:
        rows: of plan.ROWS.
        quick: few iterations.
        environments: folders of Pythons with wagma.
        ranks: numbers of ranks.
        mpi_ranks: those of the rows over MPI.
        small: bytes.
        large: bytes.
        over_mpi: bytes of the rows over MPI.
        timeout: seconds, of a launch.
        corrupt: library whose results are falsified, or None.
    """

    rows: tuple[str, ...]
    quick: bool
    environments: Sequence[Path]
    ranks: tuple[int, ...]
    mpi_ranks: tuple[int, ...]
    small: tuple[int, ...]
    large: tuple[int, ...]
    over_mpi: tuple[int, ...]
    timeout: float
    corrupt: str | None


def collect(asked: Asked) -> Report:
    """Measures; the report has what was left out and what failed as well."""
    environments, left_out = launch.environments(asked.environments)
    report: Report = {
        "environment": _environment(),
        "rows": asked.rows,
        "ranks": asked.ranks,
        "mpi_ranks": asked.mpi_ranks,
        "small": asked.small,
        "large": asked.large,
        "over_mpi": asked.over_mpi,
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
    asked: Asked, report: Report, environments: list[launch.Environment], ranks: int
) -> None:
    """All launches of so many ranks."""
    bound = ranks <= _cores()
    # MPICH spins: with more ranks than cores a collective can take seconds.
    usable = [e for e in environments if bound or e.mpi != "mpich"]
    report["left_out"] += [
        f"{ranks} ranks, MPICH: it spins, which takes seconds with {_cores()} cores"
        for e in environments
        if e not in usable
    ]
    pending = [name for name in plan.SCENARIOS if name in asked.rows]
    if ranks != asked.ranks[-1]:
        pending = []
    beside = [name for name in (*plan.POSTED, *plan.OVER_MPI) if name in asked.rows]
    if ranks not in asked.ranks:
        beside = []
    compared = ranks in asked.ranks and not plan.COMPARED.keys().isdisjoint(asked.rows)
    # Without another MPI the scenarios of wagma alone can run under MPICH.
    for environment in usable or environments[:1]:
        with_mpi = environment in usable
        levels = ["multiple"]
        if environment.mpi == "mpich" and with_mpi and compared:
            levels.append("single")
        for level in levels:
            scenarios = (*pending, *(beside if level == "multiple" else []))
            task = _Launch(environment, ranks, level, scenarios, bound, with_mpi)
            task.run(asked, report)
            pending = []


@dataclass(frozen=True)
class _Launch:
    environment: launch.Environment
    ranks: int
    level: str
    scenarios: tuple[str, ...]
    bound: bool
    with_mpi: bool

    def run(self, asked: Asked, report: Report) -> None:
        """Launches, if there is anything to measure."""
        over_mpi = self.ranks in asked.mpi_ranks and self.level == "multiple"
        cases, left_out = plan.cases(
            asked.rows if self.ranks in asked.ranks else tuple(plan.ALONE.keys() & asked.rows),
            self.ranks,
            asked.small,
            asked.large,
            asked.over_mpi if over_mpi else (),
            with_mpi=self.with_mpi,
            quick=asked.quick,
            room=room(),
        )
        report["left_out"] += [reason for reason in left_out if reason not in report["left_out"]]
        if not cases and not self.scenarios:
            return
        _progress(f"{self.ranks} ranks, {self.environment.mpi}, THREAD_{self.level.upper()}")
        task: dict[str, Any] = {
            "cases": [asdict(case) for case in cases],
            "scenarios": self.scenarios,
            "quick": asked.quick,
            "with_mpi": self.with_mpi,
            "bound": self.bound,
            "corrupt": asked.corrupt,
        }
        try:
            measured = launch.run(
                self.environment, self.ranks, self.bound, self.level, task, asked.timeout
            )
        except launch.LaunchError as error:
            report["failed"].append(str(error))
            return
        report["launches"].append(
            {
                "mpi": self.environment.mpi,
                "ranks": self.ranks,
                "bound": self.bound,
                "cases": task["cases"],
                **measured,
            }
        )


def _collect_alone(asked: Asked, report: Report) -> None:
    """The rows that need no MPI; 4 ranks, or the most that were asked for."""
    size, found = max(asked.ranks), report["alone"]
    try:
        if "passive" in asked.rows:
            _progress("passivity")
            found["passive"] = alone.passive(0.5 if asked.quick else 2.0)
        if "memory" in asked.rows:
            _progress("memory")
            bytes_ = (1 if asked.quick else 16) * MIB
            found["memory"] = {
                'quorum="all"': alone.memory(bytes_, size, quorum_all=True),
                "quorum=1": alone.memory(bytes_, size, quorum_all=False),
            }
        if "binding" in asked.rows:
            _progress("binding")
            found["binding"] = alone.binding(10 if asked.quick else 100, 2000)
    except (RuntimeError, OSError) as error:
        report["failed"].append(f"without MPI: {error}")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _environment() -> dict[str, Any]:
    """Machine, software and load at this moment."""
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
