"""Measures a point: all subjects beside each other, in blocks that alternate.

The iterations of each subject are divided into passes; in each pass every subject has one block, in
an order that is drawn anew. What disturbs the machine for a while disturbs all of them. The first
calls of a block are checked but not counted: they find the caches as another subject left them.

Before each call a rank rewrites its whole array, and all meet; then each waits until its arrival
by the pattern. Nobody checks a result while another rank still reduces. Blocks that take long are
run in pieces, between which the ranks find out whether they were interrupted.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from .checking import Checked, merge
from .contributions import Contributions
from .datatypes import DATATYPES
from .samples import Checks, Point, Series
from .settings import LARGE_BYTES, Settings
from .subjects import CSubject, Subject, subjects
from .timed import CCalls, PythonCalls, Times

if TYPE_CHECKING:
    from mpi4py import MPI

    from .start import Start

__all__ = ["alternate", "checked_of", "contributions_of", "gathered", "iterations_of", "measure"]

Make = Callable[
    [Settings, "MPI.Intracomm", Contributions, int, ExitStack], list[Subject]
]  # arguments and result as of `subjects`

PIECE_NS = 500_000_000  # until the ranks look whether they were interrupted, about
BYTES_PER_NS = 0.5  # a slow machine's, to estimate how long a call takes


def contributions_of(settings: Settings, size: int, ranks: int) -> Contributions:
    """What the arrays of `size` bytes are filled with.

    Raises:
        ValueError: results of this datatype cannot be checked.
    """
    # A late rank adds its own once more; what carries may carry everything that was ever called.
    terms = ranks + 1
    if settings.late == "carry":
        terms = ranks * sum(sum(part) for part in iterations_of(settings, size))
    count = size // DATATYPES[settings.datatype].bytes
    return Contributions(count, settings.datatype, terms if settings.validate else 1)


def iterations_of(settings: Settings, size: int) -> tuple[list[int], list[int]]:
    """Counted iterations of each pass, and uncounted ones before them.

    Fewer uncounted ones than passes are those of the first passes.
    """
    large = size > LARGE_BYTES
    iterations = settings.iterations_large if large else settings.iterations
    warmup = settings.warmup_large if large else settings.warmup
    passes = min(settings.passes, iterations)

    def parts(number: int) -> list[int]:
        return [number // passes + (i < number % passes) for i in range(passes)]

    return parts(iterations), parts(warmup)


def measure(
    settings: Settings,
    comm: MPI.Intracomm,
    start: Start,
    size: int,
    arrival: str,
    offsets: Times,
    *,
    amplitude: float | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    make: Make = subjects,
) -> Point | None:
    """Measures; collective.

    Args:
        settings: what was asked for.
        comm: all ranks.
        start: of them.
        size: bytes of each array.
        arrival: the pattern, as text.
        offsets: ns after the common start, [iterations, ranks]; begun again after their end. Each
            subject's n-th counted iteration has the n-th.
        amplitude: of the pattern, if it has one.
        interrupted: collective, the same on all ranks: whether to stop; what is complete of the
            passes is returned.
        make: makes what is measured, as `subjects` does.

    Returns:
        On rank 0 everything, elsewhere None. None also where no pass was completed.

    Raises:
        ValueError: the results cannot be checked, see `Contributions`.
        UnavailableError: something that was asked for cannot be measured.
    """
    count = size // DATATYPES[settings.datatype].bytes
    contributions = contributions_of(settings, size, comm.Get_size())
    with ExitStack() as stack:
        made = make(settings, comm, contributions, count, stack)
        from_c = _from_c(settings, made, size)
        series = [
            _calls(settings, comm, start, subject, contributions, size, from_c) for subject in made
        ]
        complete = alternate(
            series, settings, comm, size, offsets, interrupted, amplitude=amplitude
        )
    found = [gathered(comm, calls, complete) for calls in series]
    if comm.Get_rank() != 0 or complete == 0:
        return None
    return Point(size, count, arrival, amplitude, tuple(one for one in found if one is not None))


def alternate(
    series: Sequence[PythonCalls],
    settings: Settings,
    comm: MPI.Intracomm,
    size: int,
    offsets: Times,
    interrupted: Callable[[], bool] = lambda: False,
    *,
    amplitude: float | None = None,
) -> int:
    """Runs the blocks of all passes; collective. Arguments: those of `measure`.

    Returns:
        Counted iterations that every one of `series` has completed.
    """
    blocks, warmups = iterations_of(settings, size)
    # Another order of blocks at every point: what comes first must not always do so.
    drawn = np.random.default_rng([settings.seed, size, round(1e9 * (amplitude or 0.0))])
    complete = 0
    with _no_collections():
        for block, warmup in zip(blocks, warmups, strict=True):
            pieces = list(_pieces(offsets, range(complete - warmup, complete + block), size))
            order = [series[number] for number in drawn.permutation(len(series))]
            if not _run(order, pieces, complete, offsets, comm.Get_rank(), interrupted):
                break
            complete += block
    return complete


def _from_c(settings: Settings, made: Sequence[Subject], size: int) -> bool:
    """Whether the loop is in C: of all of `made`, or, with loop "c", of those that can be."""
    if settings.loop == "python" or size == 0:
        return False
    if settings.loop == "c":
        return True
    # Only what has the same loop can be compared.
    return size <= settings.c_loop_bytes and all(
        isinstance(one, CSubject) and one.c_call() is not None for one in made
    )


def _calls(
    settings: Settings,
    comm: MPI.Intracomm,
    start: Start,
    subject: Subject,
    contributions: Contributions,
    size: int,
    from_c: bool,
) -> PythonCalls:
    checked = checked_of(settings, comm, subject, contributions)
    iterations = sum(iterations_of(settings, size)[0])
    if from_c and isinstance(subject, CSubject) and (call := subject.c_call()) is not None:
        return CCalls(subject, comm, start, contributions, checked, iterations, call)
    return PythonCalls(subject, comm, start, contributions, checked, iterations)


def checked_of(
    settings: Settings, comm: MPI.Intracomm, subject: Subject, contributions: Contributions
) -> Checked | None:
    """What counts the results of a way to call `subject`; None: they are not compared."""
    if not settings.validate:
        return None
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    spoiled = settings.corrupt == subject.library and rank == last
    return Checked(rank, contributions, 1 if spoiled else None)


@contextmanager
def _no_collections() -> Iterator[None]:
    """No garbage is collected inside."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run(
    order: list[PythonCalls],
    pieces: list[range],
    counted: int,
    offsets: Times,
    rank: int,
    interrupted: Callable[[], bool],
) -> bool:
    """One block of each, whose iterations count from `counted` on; whether all were completed."""
    for calls in order:
        for piece in pieces:
            if interrupted():
                return False
            calls.run(piece, offsets[np.array(piece) % len(offsets), rank], counted)
    return not interrupted()


def _pieces(offsets: Times, iterations: range, size: int) -> Iterator[range]:
    """Cuts a block where it takes longer than PIECE_NS, by the arrivals of all ranks."""
    rows = offsets[np.array(iterations) % len(offsets)]
    expected = rows.max(axis=1) + int(size / BYTES_PER_NS) + 1
    parts = np.cumsum(expected) // PIECE_NS
    cuts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(iterations)]
    for begin, end in itertools.pairwise(cuts):
        yield iterations[begin:end]


def gathered(comm: MPI.Intracomm, calls: PythonCalls, complete: int) -> Series | None:
    """A series of all ranks at rank 0, of as many iterations as were completed; collective."""
    checks = Checks() if calls.checked is None else calls.checked.checks()
    own = (calls.began[:complete], calls.ended[:complete], calls.late[:complete], checks)
    by_rank = comm.gather(own)
    if by_rank is None:
        return None
    began, ended, late = (np.stack([rank[i] for rank in by_rank], axis=1) for i in range(3))
    checks = merge(rank[3] for rank in by_rank)
    return Series(calls.name, calls.subject.library, calls.loop, began, ended, late, checks)
