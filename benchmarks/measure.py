"""Measures a point: all subjects beside each other, in blocks that alternate.

The iterations of each subject are divided into passes; in each pass every subject has one block, in
an order that is drawn anew. What disturbs the machine for a while disturbs all of them. The first
calls of a block are checked but not counted: they find the caches as another subject left them.

Before each call a rank rewrites its whole array, and all meet; then each waits until its arrival
by the pattern. Nobody checks a result while another rank still reduces. Blocks that take long are
run in pieces, between which the ranks find out whether they were interrupted.
"""

import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from .measurement import Measurement
from .samples import Point
from .subjects import CSubject, Subject, subjects
from .timed import CCalls, PythonCalls

PIECE_NS = 500_000_000  # until the ranks look whether they were interrupted, about
BYTES_PER_NS = 0.5  # a slow machine's, to estimate how long a call takes


def measure(
    m: Measurement, make: Callable[[Measurement, ExitStack], list[Subject]] = subjects
) -> Point | None:
    """Measure; collective. `make` makes the subjects, as `subjects` does.

    Returns:
        On rank 0 everything, elsewhere None. None also where no pass was completed.

    Raises:
        ValueError: the results cannot be checked, see `Contributions`.
        UnavailableError: something that was asked for cannot be measured.
    """
    with ExitStack() as stack:
        made = make(m, stack)
        from_c = _from_c(m, made)
        series = [_calls(m, subject, from_c) for subject in made]
        complete = alternate(m, series)
    return m.point([calls.gathered(complete) for calls in series], complete)


def alternate(m: Measurement, series: Sequence[PythonCalls]) -> int:
    """Run the blocks of all passes; collective.

    Returns:
        Counted iterations that every one of `series` has completed.
    """
    # Another order of blocks at every point: what comes first must not always do so.
    drawn = np.random.default_rng([m.settings.seed, m.size, round(1e9 * (m.amplitude or 0.0))])
    complete = 0
    with _no_collections():
        for block, warmup in zip(*m.passes, strict=True):
            pieces = list(_pieces(m, range(complete - warmup, complete + block)))
            order = [series[number] for number in drawn.permutation(len(series))]
            if not _run(m, order, pieces, complete):
                break
            complete += block
    return complete


def _from_c(m: Measurement, made: Sequence[Subject]) -> bool:
    """Return whether the loop is in C: for all of `made`, or, with loop "c", where possible."""
    if m.settings.loop == "python" or m.size == 0:
        return False
    if m.settings.loop == "c":
        return True
    # Only what has the same loop can be compared.
    return m.size <= m.settings.c_loop_bytes and all(
        isinstance(one, CSubject) and one.c_call() is not None for one in made
    )


def _calls(m: Measurement, subject: Subject, from_c: bool) -> PythonCalls:
    if from_c and isinstance(subject, CSubject) and (call := subject.c_call()) is not None:
        return CCalls(m, subject, call)
    return PythonCalls(m, subject)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Suspend garbage collection in the block."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run(m: Measurement, order: list[PythonCalls], pieces: list[range], counted: int) -> bool:
    """Run a block of each, counted from iteration `counted`; return whether all were completed."""
    for calls in order:
        for piece in pieces:
            if m.interrupted():
                return False
            calls.run(piece, m.offsets_of(piece)[:, m.rank], counted)
    return not m.interrupted()


def _pieces(m: Measurement, iterations: range) -> Iterator[range]:
    """Yield pieces of a block that take about PIECE_NS, by the arrivals of all ranks."""
    expected = m.offsets_of(iterations).max(axis=1) + int(m.size / BYTES_PER_NS) + 1
    parts = np.cumsum(expected) // PIECE_NS
    cuts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(iterations)]
    for begin, end in itertools.pairwise(cuts):
        yield iterations[begin:end]
