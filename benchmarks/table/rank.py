"""One rank of a launch: reads the plan, measures, and rank 0 writes what all ranks measured.

Arguments: the plan and the report, both JSON. Started by launch.py under an mpiexec.
"""

import json
import os
import sys
import traceback
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from wagma.launch.together import abort

from .. import arrival, nonblocking
from ..measure import measure
from ..measurement import Measurement
from ..raw import to_json
from ..scenarios import plan as scenarios
from ..scenarios import training
from ..scenarios.fastest import fastest
from ..scenarios.idle import idle
from ..settings import Settings
from ..start import Start
from ..subjects import Subject, subjects
from . import plan
from .plan import Case

THREAD_LEVELS = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}


def run(task: dict[str, Any]) -> dict[str, Any] | None:
    """Measure; on rank 0 the launch's part of the report."""
    comm = MPI.COMM_WORLD
    own: dict[str, Any] = {
        "affinity": sorted(os.sched_getaffinity(0)),
        "library": MPI.Get_library_version().partition("\n")[0].strip(" \0"),
        "thread_level": THREAD_LEVELS[MPI.Query_thread()],
    }
    trips: list[float] = []
    with Start(comm, crowded=not task["bound"]) as start:
        points = []
        for case in task["cases"]:
            points.append(_ratios(Case(**case), comm, start, task["corrupt"]))
            trip = start.round_trip()  # a virtual machine may move its cores meanwhile
            if trip is not None:
                trips.append(trip)
        posted = {
            kind: _posted(plan.posted(kind, task["quick"], task["corrupt"]), comm, start)
            for kind in plan.POSTED
            if kind in task["scenarios"]
        }
        own |= _scenarios(task, comm, start)
    by_rank = comm.gather(own)
    if by_rank is None:
        return None
    return {"by_rank": by_rank, "points": points, "posted": posted, "round_trips_ns": trips}


def _measurement(settings: Settings, comm: MPI.Intracomm, start: Start) -> Measurement:
    pattern = arrival.parse(settings.arrival)
    offsets = arrival.offsets(pattern, comm.Get_size(), settings.iterations, settings.seed)
    return Measurement(settings, comm, start, settings.sizes[0], pattern.text, offsets)


def _ratios(
    case: Case, comm: MPI.Intracomm, start: Start, corrupt: str | None
) -> dict[str, Any] | None:
    m = _measurement(plan.settings(case, corrupt), comm, start)

    def make(m: Measurement, stack: ExitStack) -> list[Subject]:
        """Return the forms of wagma, and one set of MPI's."""
        made: list[Subject] = []
        for name in case.wagma:
            baselines = m.settings.baselines if name == case.wagma[-1] else ()
            one = replace(m.settings, baselines=baselines, **plan.WAGMA[name])
            first, *others = subjects(replace(m, settings=one), stack)
            first.name = name
            made += [first, *others]
        return made

    point = measure(replace(m, amplitude=case.lateness), make)
    if point is None:
        return None
    if case.lateness:
        series = (replace(one, delayed=m.offsets > 0) for one in point.series)
        point = replace(point, series=tuple(series))
    return to_json(point)


def _posted(settings: Settings, comm: MPI.Intracomm, start: Start) -> dict[str, Any] | None:
    point = nonblocking.measure(_measurement(settings, comm, start))
    return None if point is None else to_json(point)


def _scenarios(task: dict[str, Any], comm: MPI.Intracomm, start: Start) -> dict[str, Any]:
    wanted = task["scenarios"]
    steps = scenarios.training(task["quick"])
    spoil = 1 if task["corrupt"] == "wagma" and comm.Get_rank() == 0 else None
    found: dict[str, Any] = {}
    if "grace" in wanted:
        found["grace"] = training.jitter(comm, start, steps, spoil)
    if "straggler" in wanted:
        found["straggler"] = training.straggler(comm, start, steps, spoil, task["with_mpi"])
    if "mpi-straggler" in wanted:
        found["mpi-straggler"] = training.straggler_over_mpi(comm, start, steps, spoil)
    if "mpi-idle" in wanted:
        found["mpi-idle"] = idle(comm, start, steps)
    if "k-of-p" in wanted:
        found["k-of-p"] = fastest(comm, start, scenarios.fastest(task["quick"]), spoil)
    return found


def main() -> None:
    """Measure; a rank that fails ends all of them."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    try:
        report = run(json.loads(source.read_text()))
    except BaseException:
        traceback.print_exc()
        abort(MPI.COMM_WORLD)
    if report is not None:
        target.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
