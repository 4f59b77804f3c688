"""Checks that a training algorithm, yours or one of wagma's, behaves as an optimizer should.

    import wagma.testing

    def make(comm):
        return MyAlgorithm(comm, period=2)

    print(wagma.testing.check_algorithm(make))  # on the ranks of mpiexec or torchrun, or alone

docs/writing-an-algorithm.md lists the checks, and tells how to write an algorithm.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from wagma.collectives import PeerError, StallError
from wagma.collectives.rendezvous.meeting import Meeting
from wagma.testing import places
from wagma.testing.checks import CHECKS
from wagma.training.ranks import Ranks
from wagma.training.strategies.base import Algorithm

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

__all__ = ["check_algorithm"]


def check_algorithm(
    make: Callable[[Any], Algorithm], comm: Comm = "auto", *, skip: Collection[str] = ()
) -> list[str]:
    """Check an algorithm in small trainings; collective over `comm`.

    The checks compare computed values on one rank. They compare them on all ranks only if the
    algorithm is not `wait_avoiding`, because otherwise results depend on the order of arrival.

    Args:
        make: creates an algorithm over the given communicator.
        comm: the ranks, as for every algorithm.
        skip: names of checks to leave out, such as "one rank" for an algorithm that differs from
            the bare optimizer on one rank.

    Returns:
        The names of the checks that ran. Checks on one rank need MPI if there are several ranks,
        and checks of weights or averaged gradients need an algorithm that has these.

    Raises:
        AssertionError: a check failed on any rank; the message names the check, the finding and the
            remedy.
        ValueError: `skip` has the name of no check.
    """
    if unknown := sorted(set(skip) - CHECKS.keys()):
        raise ValueError(f"skip={unknown[0]!r} is no check: they are {', '.join(CHECKS)}")
    # A rank may arrive as late as the longest wait of another one.
    ranks = Ranks(comm, timeout=2 * places.TIMEOUT_S)
    everywhere = list(places.find(make, comm, ranks))
    done = []
    for name, (check, remedy) in CHECKS.items():
        if name in skip:
            continue
        ran = [_run(name, check, remedy, place, ranks) for place in everywhere]
        if any(ran):
            done.append(name)
    return done


def _run(
    name: str,
    check: Callable[[places.Place], bool | None],
    remedy: str,
    place: places.Place,
    ranks: Ranks,
) -> bool:
    """Run a check in `place`; return whether it had something to check; collective over all ranks.

    A rank with an error passes it on in its next meeting, which may be here or in the creation of
    an optimizer on other ranks. An error raised by a meeting of all ranks is known to all.
    """
    ran: bool | None = None
    error: Exception | None = None

    def raise_error() -> None:
        if error is not None:
            text = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
            follows = isinstance(error, PeerError | StallError)
            raise error if follows else RuntimeError(text)

    try:
        ran = check(place)
    except Exception as caught:
        error = caught
    common = error
    if error is None or place.size < ranks.size or not _is_known(error):
        try:
            with ranks.meet() as meeting:
                meeting.exchange(raise_error, last=True)
        except Exception as caught:
            common = caught
    if common is not None:
        where = _ranks_and_message(common, ranks)
        raise AssertionError(f"check {name!r} failed on {where}. {remedy}") from error
    return ran is not False


def _is_known(error: Exception) -> bool:
    """Return whether a meeting raised the error, which all of its ranks then have."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is Meeting.exchange.__code__ for frame, _ in frames)


def _ranks_and_message(error: Exception, ranks: Ranks) -> str:
    """Return the ranks of an error and its message; a meeting names ranks unless it is all."""
    named = re.match(r"(ranks? \d[\d, -]*): ", str(error))
    where = named[1] if named else "rank 0" if ranks.size == 1 else "all ranks"
    text = str(error)[named.end() :] if named else str(error)
    kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
    return f"{where}: {kind}{text}"
