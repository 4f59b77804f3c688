"""Checks that a training algorithm, yours or one of wagma's, behaves as an optimizer has to.

    import wagma.testing

    def make(comm):
        return MyAlgorithm(comm, period=2)

    print(wagma.testing.check_algorithm(make))  # on the ranks of mpiexec or torchrun, or alone

docs/writing-an-algorithm.md says what is checked, and how an algorithm is written.
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
    """Check that optimizers with the algorithm behave; collective over `comm`.

    What is computed is compared on one rank, and on all ranks where the algorithm is not
    `wait_avoiding`, so that results do not depend on who comes when.

    Args:
        make: gives a fresh algorithm over the communicator that it is passed.
        comm: the ranks, as of every algorithm.
        skip: names of checks to leave out, such as "one rank" for an algorithm that is not the bare
            optimizer on one rank.

    Returns:
        The names of the checks that ran. Some cannot: those on one rank where several ranks are not
        MPI's, those of weights or averaged gradients where the algorithm has none.

    Raises:
        AssertionError: a check failed, on any rank; names the check, what was found and the remedy.
        ValueError: `skip` has a name that no check has.
    """
    if unknown := sorted(set(skip) - CHECKS.keys()):
        raise ValueError(f"skip={unknown[0]!r} is no check: they are {', '.join(CHECKS)}")
    # A rank may come as late as another one's wait has taken.
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
    """Return whether the check has something to check in `place`; collective over all ranks.

    A rank with an error of its own tells it in its next meeting, wherever the others meet: in
    making an optimizer or here. What a meeting of all ranks has raised is known to all.
    """
    ran: bool | None = None
    error: Exception | None = None

    def tell() -> None:
        if error is not None:
            text = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
            follows = isinstance(error, PeerError | StallError)
            raise error if follows else RuntimeError(text)

    try:
        ran = check(place)
    except Exception as caught:
        error = caught
    told = error
    if error is None or place.size < ranks.size or not _is_known(error):
        try:
            with ranks.meet() as meeting:
                meeting.exchange(tell, last=True)
        except Exception as caught:
            told = caught
    if told is not None:
        raise AssertionError(f"check {name!r} failed on {_shown(told, ranks)}. {remedy}") from error
    return ran is not False


def _is_known(error: Exception) -> bool:
    """Return whether a meeting has raised the error, on all of its ranks."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is Meeting.exchange.__code__ for frame, _ in frames)


def _shown(told: Exception, ranks: Ranks) -> str:
    """Return where the error was and what it is; a meeting names ranks that are not all."""
    found = re.match(r"(ranks? \d[\d, -]*): ", str(told))
    where = found[1] if found else "rank 0" if ranks.size == 1 else "all ranks"
    text = str(told)[found.end() :] if found else str(told)
    kind = "" if type(told) is RuntimeError else f"{type(told).__name__}: "
    return f"{where}: {kind}{text}"
