"""The fastest K of P ranks: late="skip", with exponential times of computing.

Each rank computes (sleeps) for its version and calls. From a call's end to the next call passes
what the injector draws for that rank and version; in it the results are copied, to be checked
afterwards, and the next contribution is written. The table compares with a replay of the same draws
(theory.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from compare import Checked
from contributions import Contributions, Vector
from plan import Fastest
from theory import draws

from wagma.collectives import PartialAllreduce

if TYPE_CHECKING:
    from mpi4py import MPI
    from startline import StartLine

__all__ = ["fastest"]


def fastest(
    comm: MPI.Intracomm, line: StartLine, s: Fastest, spoil: int | None
) -> list[dict[str, Any]]:
    """Every quorum below the number of ranks, with equal ranks and with a slow one; collective."""
    return [
        _run(comm, line, s, quorum, slow, spoil)
        for slow in (False, True)
        for quorum in range(1, comm.Get_size())
    ]


def _run(
    comm: MPI.Intracomm, line: StartLine, s: Fastest, quorum: int, slow: bool, spoil: int | None
) -> dict[str, Any]:
    """One handle. Times are ns of CLOCK_MONOTONIC, which the ranks share."""
    rank, clock = comm.Get_rank(), time.perf_counter_ns
    pauses = draws(s, comm.Get_size(), slow)[:, rank]
    contributions = Contributions(s.bytes // 4)
    x = np.zeros(s.bytes // 4, np.float32)
    calls: dict[str, list[Any]] = {"version": [], "began_ns": [], "ended_ns": [], "late": []}
    results: list[Vector] = []
    overslept = 0
    with PartialAllreduce(
        comm, x, quorum=quorum, grace=0, late="skip", average=False, window=s.window
    ) as coll:
        line.wait()
        started = ended = clock()
        while (version := coll.version) < s.versions:
            contributions.write(x, rank, version)
            due = ended + round(pauses[version] * 1e9)
            time.sleep(max(0, due - clock()) * 1e-9)
            began = clock()
            outcome = coll.allreduce(x)
            ended = clock()
            overslept += began - due
            calls["version"].append(version)
            calls["began_ns"].append(began)
            calls["ended_ns"].append(ended)
            calls["late"].append(outcome.late)
            results += [result.copy() for result in outcome.results[:-1]]
            results.append(x.copy())  # x is the newest of them
        line.wait()  # nobody departs while another still computes
    return {
        "quorum": quorum,
        "slow": slow,
        "started_ns": started,
        "overslept": overslept * 1e-9 / len(calls["version"]),
        **calls,
        "counts": _check(comm, Checked(rank, contributions, spoil), quorum, calls, results),
    }


def _check(
    comm: MPI.Intracomm,
    checked: Checked,
    quorum: int,
    calls: dict[str, list[Any]],
    results: list[Vector],
) -> dict[str, Any]:
    """Every version's result is the sum of those that were in time for it, and they are enough."""
    late = dict(zip(calls["version"], calls["late"], strict=True))
    in_time = comm.allgather({version for version, was_late in late.items() if not was_late})
    for version, result in enumerate(results):
        fresh = [rank for rank, versions in enumerate(in_time) if version in versions]
        # Of too few no sum is right.
        holds = [(rank, version) for rank in fresh] if len(fresh) >= quorum else []
        checked.check(f"fastest, quorum={quorum}", result, holds, late.get(version, False))
    return checked.counts()
