"""The fastest K of P ranks: late="skip", with exponential times of computing.

Each rank computes (sleeps) for its version and calls. From a call's end to the next call passes
what the injector draws for that rank and version; in it the results are copied, to be checked
afterwards, and the next contribution is written. The table compares with a replay of the same draws
(`wagma.theory.replay`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from wagma.collectives import PartialAllreduce

from ..checking import Checked
from ..contributions import Contributions, Vector
from .plan import Fastest, draws

if TYPE_CHECKING:
    from mpi4py import MPI

    from ..start import Start


def fastest(
    comm: MPI.Intracomm, start: Start, s: Fastest, spoil: int | None
) -> list[dict[str, Any]]:
    """Every quorum below the number of ranks, with equal ranks and with a slow one; collective."""
    return [
        _run(comm, start, s, quorum, slow, spoil)
        for slow in (False, True)
        for quorum in range(1, comm.Get_size())
    ]


@dataclass
class _Calls:
    """What the calls of a handle took and gave; times are ns of a clock that the ranks share."""

    version: list[int] = field(default_factory=list)
    began_ns: list[int] = field(default_factory=list)
    ended_ns: list[int] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)
    results: list[Vector] = field(default_factory=list)  # of all versions

    def make(self, coll: PartialAllreduce, x: Vector) -> None:
        """Call once with `x`."""
        self.version.append(coll.version)
        self.began_ns.append(time.perf_counter_ns())
        outcome = coll.allreduce(x)
        self.ended_ns.append(time.perf_counter_ns())
        self.late.append(outcome.late)
        for result in outcome.results[:-1]:
            assert result is not None
            self.results.append(result.copy())
        self.results.append(x.copy())  # x is the newest of them

    def report(self, first: int) -> dict[str, list[Any]]:
        """Return the calls from `first` on, without their results; versions count from 0."""
        return {
            "version": [version - self.version[first] for version in self.version[first:]],
            "began_ns": self.began_ns[first:],
            "ended_ns": self.ended_ns[first:],
            "late": self.late[first:],
        }


def _run(
    comm: MPI.Intracomm, start: Start, s: Fastest, quorum: int, slow: bool, spoil: int | None
) -> dict[str, Any]:
    """Use one handle: some calls with everybody present, then those that are measured."""
    rank, clock = comm.Get_rank(), time.perf_counter_ns
    pauses = draws(s, comm.Get_size(), slow)[:, rank]
    contributions = Contributions(s.bytes // 4, terms=comm.Get_size())
    x = np.zeros(s.bytes // 4, np.float32)
    calls = _Calls()
    overslept = 0
    with PartialAllreduce(
        comm, x, quorum=quorum, grace=0, late="skip", average=False, window=s.window
    ) as coll:
        for version in range(s.rounds):  # between two starts nobody gets ahead
            contributions.write(x, rank, version)
            start.wait()
            calls.make(coll, x)
            start.meet()
        started = ended = clock()
        while (version := coll.version - s.rounds) < s.versions:
            contributions.write(x, rank, coll.version)
            due = ended + round(pauses[version] * 1e9)
            time.sleep(max(0, due - clock()) * 1e-9)
            calls.make(coll, x)
            ended = calls.ended_ns[-1]
            overslept += calls.began_ns[-1] - due
        start.meet()  # nobody departs while another still computes
    measured = calls.report(s.rounds)
    return {
        "quorum": quorum,
        "slow": slow,
        "present_ns": [
            calls.ended_ns[i] - calls.began_ns[i] for i in range(1, s.rounds) if not calls.late[i]
        ],
        "started_ns": started,
        "overslept": overslept * 1e-9 / len(measured["version"]),
        **measured,
        "counts": _check(comm, Checked(rank, contributions, spoil), quorum, calls),
    }


def _check(comm: MPI.Intracomm, checked: Checked, quorum: int, calls: _Calls) -> dict[str, Any]:
    """Check that each result is the sum of punctual contributions, at least `quorum`."""
    late = dict(zip(calls.version, calls.late, strict=True))
    in_time = comm.allgather({version for version, was_late in late.items() if not was_late})
    for version, result in enumerate(calls.results):
        fresh = [rank for rank, versions in enumerate(in_time) if version in versions]
        # With too few fresh ranks no sum is right.
        holds = [(rank, version) for rank in fresh] if len(fresh) >= quorum else []
        checked.check(f"fastest, quorum={quorum}", result, holds, late.get(version, False))
    return checked.counts()
