"""The timed calls of one subject, from Python or from C, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .checking import Checked
from .subjects import Contributed, Subject, Taken

if TYPE_CHECKING:
    from mpi4py import MPI

    from .contributions import Contributions
    from .start import Start

__all__ = ["PythonCalls", "Times"]

Times = npt.NDArray[np.int64]


class PythonCalls:
    """Calls from Python; on all ranks together.

    Args:
        subject: what is called.
        comm: all ranks.
        start: of them.
        contributions: that are written before each call.
        checked: counts the results; None: they are not compared.
        iterations: counted ones, whose times are kept.

    Attributes:
        began: ns, [iterations]: when the call began.
        ended: when it returned.
        late: whether the rank's contribution came too late.
    """

    loop = "python"

    def __init__(
        self,
        subject: Subject,
        comm: MPI.Intracomm,
        start: Start,
        contributions: Contributions,
        checked: Checked | None,
        iterations: int,
    ) -> None:
        self.subject = subject
        self.checked = checked
        self.began: Times = np.zeros(iterations, np.int64)
        self.ended: Times = np.zeros(iterations, np.int64)
        self.late = np.zeros(iterations, np.bool_)
        self._comm, self._start, self._contributions = comm, start, contributions
        self._contributed = Contributed(comm.Get_size())

    def run(self, iterations: range, arrivals: Times, counted: int) -> None:
        """Calls once in each of `iterations`.

        Args:
            iterations: their numbers.
            arrivals: of this rank after the common start, ns.
            counted: number of the first iteration that is.
        """
        subject, start, now = self.subject, self._start, self._start.now
        rank = self._comm.Get_rank()
        for iteration, arrival in zip(iterations, arrivals.tolist(), strict=True):
            self._contributions.write(subject.array(), rank, subject.version)
            subject.ready()
            call = subject.call
            start.wait(arrival)
            began = now()
            outcome = call()
            ended = now()
            # Who is done must not take the core from who is not: the check takes long.
            start.meet()
            version = subject.version
            taken = subject.taken(outcome)
            self._check(version, taken)
            if iteration >= counted:
                self._keep(iteration, began, ended, taken.late)

    def _keep(self, iteration: Any, began: Any, ended: Any, late: Any) -> None:
        self.began[iteration] = began
        self.ended[iteration] = ended
        self.late[iteration] = late

    def _check(self, version: int, taken: Taken) -> None:
        if self.checked is None:
            return
        holds = taken.holds
        if self.subject.carries:
            holds = self._contributed.expand(holds, version)
            self._contributed.note(version, self._comm.allgather(taken.late))
        self.checked.compare(self.subject.name, taken.result, holds, taken.late, taken.wrong)
