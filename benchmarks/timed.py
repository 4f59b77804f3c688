"""The timed calls of one subject, from Python or from C, and what became of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _loop
from .checking import COPIED_BYTES, Checked, Contributed, merge
from .measurement import Measurement
from .samples import Checks, Series, Times
from .subjects import CSubject, Subject, Taken

KEPT_BYTES = 16 << 20  # of the results that are checked together, and of the inputs in C


class _Named(NamedTuple):
    """Contributions (rank, version) that a call named, and what was found of its result."""

    number: int
    right: bool
    group: tuple[int, ...]
    named: tuple[tuple[int, int], ...]


class PythonCalls:
    """Calls from Python; on all ranks together.

    Args:
        m: what is measured.
        subject: what is called.

    Attributes:
        name: of the series.
        checked: counts the results; None: they are not compared.
        began: ns, [iterations]: when the call began.
        ended: when it returned.
        late: whether the rank's contribution came too late.
    """

    loop = "python"

    def __init__(self, m: Measurement, subject: Subject) -> None:
        self.subject = subject
        self.name = subject.name
        self.checked: Checked | None = None
        if m.settings.validate:
            spoiled = m.settings.corrupt == subject.library and m.rank == m.ranks - 1
            self.checked = Checked(m.rank, m.contributions, 1 if spoiled else None)
        iterations = sum(m.passes[0])
        self.began: Times = np.zeros(iterations, np.int64)
        self.ended: Times = np.zeros(iterations, np.int64)
        self.late = np.zeros(iterations, np.bool_)
        self._comm, self._start, self._contributions = m.comm, m.start, m.contributions
        self._contributed = Contributed(m.ranks)
        self._unagreed: list[_Named] = []

    def run(self, iterations: range, arrivals: Times, counted: int) -> None:
        """Call once in each of `iterations`, and compare what the ranks named.

        Args:
            iterations: their numbers.
            arrivals: of this rank after the common start, ns.
            counted: number of the first iteration that is.
        """
        self._run(iterations, arrivals, counted)
        self._agree()

    def _run(self, iterations: range, arrivals: Times, counted: int) -> None:
        nbytes = self._contributions.count * self._contributions.storage.itemsize
        most = max(1, KEPT_BYTES // max(1, nbytes))
        if self.checked is not None and nbytes > COPIED_BYTES:
            most = 1
        for first in range(0, len(iterations), most):
            part = slice(first, first + most)
            self._part(iterations[part], arrivals[part], counted)

    def _part(self, iterations: range, arrivals: Times, counted: int) -> None:
        """Call, then check: a check between two calls would empty the caches for the next one.

        For the same reason nothing happens between two of them but what cannot wait: small results
        are copied. That of a single call is checked where it is.
        """
        subject, start, now = self.subject, self._start, self._start.now
        rank, contributions, call = self._comm.Get_rank(), self._contributions, subject.caller()
        calls, version = len(iterations), subject.version
        copies = None
        if self.checked is not None and calls > 1:
            copies = np.empty((calls, self._contributions.count), self._contributions.storage)
        began, ended = np.zeros((2, calls), np.int64)
        delivered = []
        for i, arrival in enumerate(arrivals.tolist()):
            subject.fill(contributions, rank, version + i)
            subject.ready()
            start.wait(arrival)
            before = now()
            outcome = call()
            after = now()
            # A finished rank must not preempt one that still runs: what follows takes long.
            start.meet()
            began[i], ended[i] = before, after
            one = subject.delivered(outcome)
            if copies is not None and one.result is not None:
                copies[i] = one.result
            delivered.append(one)
        taken = []
        for i, one in enumerate(delivered):
            if copies is not None and one.result is not None:
                taken.append(subject.taken(one._replace(result=copies[i])))
            else:
                taken.append(subject.taken(one))
        self._note(iterations, counted, began, ended, taken)

    def _note(
        self,
        iterations: range,
        counted: int,
        began: Sequence[int] | Times,
        ended: Sequence[int] | Times,
        taken: list[Taken],
    ) -> None:
        """Keep what is counted of consecutive calls, and check what they gave."""
        late = [one.late for one in taken]
        if iterations.stop > counted:
            new = max(0, counted - iterations.start)
            kept = slice(iterations.start + new, iterations.stop)
            self.began[kept] = began[new:]
            self.ended[kept] = ended[new:]
            self.late[kept] = late[new:]
        if self.checked is None:
            return
        version = self.subject.version - len(taken)
        everywhere = None
        if self.subject.carries:  # late ranks determine what the results hold
            everywhere = np.stack(self._comm.allgather(np.array(late)), axis=1)
        for i, one in enumerate(taken):
            holds = one.holds
            if everywhere is not None:
                holds = self._contributed.expand(holds, version + i)
                self._contributed.note(version + i, everywhere[i].tolist())
            number = self.checked.results
            right = self.checked.compare(self.name, one.result, holds, one.late, one.wrong)
            if self.subject.has_outcomes:
                self._unagreed.append(_Named(number, right, one.group, one.named))

    def _agree(self) -> None:
        """Check that all ranks of a group name the same contributions since last time.

        Only now and then: what MPI does between two calls would leave its own data in the caches.
        Whether a rank was late follows from what it names, which was compared on that rank: where
        all name the same, they also agree about who was late.
        """
        if self.checked is None or not self.subject.has_outcomes:
            return
        mine = np.array([hash(one.named) for one in self._unagreed], np.int64)
        everywhere = np.stack(self._comm.allgather(mine), axis=1)
        for one, hashes in zip(self._unagreed, everywhere, strict=True):
            others = [rank for rank in one.group if hashes[rank] != hash(one.named)]
            if one.right and others:
                self.checked.fail(
                    self.name,
                    one.number,
                    f"rank {others[0]} of group {one.group} names other contributions than "
                    f"{one.named}",
                )
        self._unagreed.clear()

    def samples(self) -> dict[str, npt.NDArray[Any]]:
        """Return this rank's samples by their names in `Series`, [iterations]."""
        return {"began": self.began, "ended": self.ended, "late": self.late}

    def gathered(self, complete: int) -> Series | None:
        """Return a series of all ranks at rank 0, of the completed iterations; collective."""
        own = {name: each[:complete] for name, each in self.samples().items()}
        checks = Checks() if self.checked is None else self.checked.checks()
        by_rank = self._comm.gather((own, checks))
        if by_rank is None:
            return None
        samples = {name: np.stack([rank[name] for rank, _ in by_rank], axis=1) for name in own}
        checks = merge(checks for _, checks in by_rank)
        return Series(self.name, self.subject.library, self.loop, checks=checks, **samples)


class CCalls(PythonCalls):
    """Calls from C. Results are copied after each call, and compared after the loop."""

    loop = "c"

    def __init__(self, m: Measurement, subject: CSubject, call: _loop.Call) -> None:
        super().__init__(m, subject)
        self._called = subject
        self._call = call
        self._outcome_dtype = _loop.outcome_dtype(m.ranks)

    def _part(self, iterations: range, arrivals: Times, counted: int) -> None:
        subject, rank, calls = self._called, self._comm.Get_rank(), len(iterations)
        shape = (calls, self._contributions.count)
        inputs = np.empty(shape, self._contributions.storage)
        for i, row in enumerate(inputs):
            self._contributions.write(row, rank, subject.version + i)
        results = None if self.checked is None else np.empty_like(inputs)
        outcomes = None
        if subject.has_outcomes:
            outcomes = np.zeros(calls, self._outcome_dtype)
        began, ended = np.zeros((2, calls), np.int64)
        _loop.run(
            self._start,
            self._call,
            subject.address,
            inputs.view(np.uint8),
            np.ascontiguousarray(arrivals),
            began,
            ended,
            None if results is None else results.view(np.uint8),
            outcomes,
        )
        self._start.meet()  # nobody checks while another still reduces
        taken = []
        for i in range(calls):
            result = None if results is None else results[i]
            taken.append(subject.c_taken(result, None if outcomes is None else outcomes[i]))
        self._note(iterations, counted, began, ended, taken)
