"""Reductions that are posted before computing and waited for afterwards, while one rank posts late.

In every version one rank, drawn anew, sleeps before it posts; every rank sleeps between posting and
waiting, in place of computing. What the call takes from the ranks that were punctual is the time in
posting and waiting. It is compared with the same for MPI_Iallreduce, with a blocking call after the
same sleeps, and with a blocking call of ranks that are all present: the reduction itself.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from compare import Checked, taken
from contributions import Contributions, Vector
from plan import Overlap

from wagma.collectives import PartialAllreduce
from wagma.inject import Paper

if TYPE_CHECKING:
    from mpi4py import MPI
    from startline import StartLine

__all__ = ["overlap"]

Holds = list[tuple[int, int]]


@dataclass
class _Series:
    """One way to reduce `x`: `post` returns what `wait` takes, and `wait` what the result holds.

    Attributes:
        post: None: there is nothing to post, `wait` is a blocking call.
        present: all ranks call at once, nobody sleeps.
        version: of the next contribution.
        samples: ns in `post` and `wait`.
    """

    name: str
    source: Vector
    result: Vector
    post: Callable[[], Any] | None
    wait: Callable[[Any], tuple[Holds, bool]]
    version: Callable[[], int]
    checked: Checked
    present: bool = False
    samples: list[int] = field(default_factory=list)

    def iterate(self, line: StartLine, lateness: float, computing: float, *, counted: bool) -> None:
        """Rewrites the input, starts together with the others, and checks the result."""
        checked, clock = self.checked, time.perf_counter_ns
        checked.contributions.write(self.source, checked.rank, self.version())
        request, spent = None, 0
        line.wait()
        if not self.present:
            time.sleep(lateness)
            if self.post is not None:
                began = clock()
                request = self.post()
                spent = clock() - began
            time.sleep(computing)
        began = clock()
        holds, late = self.wait(request)
        spent += clock() - began
        line.wait()  # nobody checks while another still reduces
        checked.check(self.name, self.result, holds, late)
        if counted:
            self.samples.append(spent)


def _wagma(coll: PartialAllreduce, checked: Callable[[], Checked]) -> list[_Series]:
    x = coll.empty()

    def of(outcome: Any) -> tuple[Holds, bool]:
        return taken(outcome, coll.rank), outcome.late

    def call(_: None) -> tuple[Holds, bool]:
        return of(coll.allreduce(x))

    def series(name: str, post: Any, wait: Any, *, present: bool = False) -> _Series:
        return _Series(name, x, x, post, wait, lambda: coll.version, checked(), present)

    return [
        series("wagma present", None, call, present=True),
        series("wagma blocking", None, call),
        series("wagma posted", lambda: coll.iallreduce(x), lambda request: of(request.wait())),
    ]


def _mpi(comm: MPI.Intracomm, count: int, checked: Callable[[], Checked]) -> list[_Series]:
    from mpi4py import MPI

    def series(form: str) -> _Series:
        source = np.empty(count, np.float32)
        result = source if form == "in place" else np.empty_like(source)
        sent: Any = MPI.IN_PLACE if form == "in place" else source
        counts = checked()

        def wait(request: MPI.Request) -> tuple[Holds, bool]:
            request.Wait()
            return [(rank, counts.results) for rank in range(comm.Get_size())], False

        def post() -> MPI.Request:
            return comm.Iallreduce(sent, result)

        return _Series(f"mpi {form}", source, result, post, wait, lambda: counts.results, counts)

    return [series("in place"), series("two buffers")]


def overlap(
    comm: MPI.Intracomm, line: StartLine, s: Overlap, corrupt: str | None, with_mpi: bool
) -> dict[str, Any]:
    """Measures; collective. `corrupt`: falsify one result of each series of "wagma" or "mpi".

    Returns:
        For each series this rank's samples in ns, whether it was punctual in each, and its counts
        of results.
    """
    rank, count = comm.Get_rank(), s.bytes // 4
    contributions = Contributions(count)

    def checked(library: str) -> Callable[[], Checked]:
        spoil = 1 if rank == 0 and corrupt == library else None
        return lambda: Checked(rank, contributions, spoil)

    iterations = s.warmup + s.iterations
    lateness = Paper(comm.Get_size(), 1, s.lateness, seed=s.seed).table(s.blocks * iterations)
    first = np.zeros(count, np.float32)
    with PartialAllreduce(comm, first, quorum="all", average=False) as coll:
        series = _wagma(coll, checked("wagma"))
        if with_mpi:
            series += _mpi(comm, count, checked("mpi"))
        gc.collect()
        gc.disable()
        for block in range(s.blocks):
            for one in series if block % 2 == 0 else reversed(series):
                for i in range(iterations):
                    delay = float(lateness[block * iterations + i, rank])
                    one.iterate(line, delay, s.computing, counted=i >= s.warmup)
        gc.enable()
        line.wait()  # nobody departs while another is still in its last call
    counted = lateness[:, rank].reshape(s.blocks, iterations)[:, s.warmup :] == 0
    punctual = counted.ravel().tolist()
    return {
        one.name: {
            "samples_ns": one.samples,
            "punctual": [True] * len(punctual) if one.present else punctual,
            **one.checked.counts(),
        }
        for one in series
    }
