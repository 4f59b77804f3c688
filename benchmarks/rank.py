"""One rank of a launch: reads the plan, measures, and rank 0 writes what all ranks measured.

Arguments: the plan and the report, both JSON. Started by engine.py under an mpiexec.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import compare
import fastest
import overlap
import scenarios
from mpi4py import MPI
from plan import Case, Fastest, Overlap, Scenario
from startline import StartLine

THREAD_LEVELS = {
    MPI.THREAD_SINGLE: "single",
    MPI.THREAD_FUNNELED: "funneled",
    MPI.THREAD_SERIALIZED: "serialized",
    MPI.THREAD_MULTIPLE: "multiple",
}


def run(plan: dict[str, Any]) -> dict[str, Any]:
    """What this rank measures."""
    comm = MPI.COMM_WORLD
    line = StartLine(comm, crowded=not plan["bound"])
    corrupt = plan["corrupt"]
    report: dict[str, Any] = {
        "affinity": sorted(os.sched_getaffinity(0)),
        "library": MPI.Get_library_version().partition("\n")[0].strip(" \0"),
        "thread_level": THREAD_LEVELS[MPI.Query_thread()],
        "cases": [],
    }
    for fields in plan["cases"]:
        case = Case(**fields)
        report["cases"].append(compare.measure(case, comm, line, corrupt))
    scenario = Scenario(**plan["scenario"])
    spoil = 1 if corrupt == "wagma" and comm.Get_rank() == 0 else None
    if "grace" in plan["scenarios"]:
        report["grace"] = scenarios.jitter(comm, line, scenario, spoil)
    if "straggler" in plan["scenarios"]:
        report["straggler"] = scenarios.straggler(comm, line, scenario, spoil, plan["with_mpi"])
    if "iallreduce" in plan["scenarios"]:
        posted = Overlap(**plan["iallreduce"])
        report["iallreduce"] = overlap.overlap(comm, line, posted, corrupt, plan["with_mpi"])
    if "k-of-p" in plan["scenarios"]:
        report["k-of-p"] = fastest.fastest(comm, line, Fastest(**plan["k-of-p"]), spoil)
    return report


def main() -> None:
    """Measures; a rank that fails ends all of them."""
    plan, target = (Path(argument) for argument in sys.argv[1:])
    try:
        by_rank = MPI.COMM_WORLD.gather(run(json.loads(plan.read_text())))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
    if by_rank is not None:
        target.write_text(json.dumps(by_rank))


if __name__ == "__main__":
    main()
