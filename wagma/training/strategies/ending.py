"""How the ranks of an algorithm agree on the end of a training."""

from __future__ import annotations

from abc import abstractmethod
from typing import SupportsIndex, Unpack

from wagma.collectives.rendezvous.meeting import Comm
from wagma.inject.checks import check_count
from wagma.training.ranks import Ranks, Waits
from wagma.training.stopping import Stops, StopWatch
from wagma.training.strategies.collective import Collective

__all__ = ["AgreedEnd"]

WINDOW = 64  # versions by which ranks may differ where nothing else is known, as of collectives


class AgreedEnd(Ranks):
    """The part of an `Algorithm` by which one rank's wish to stop becomes an end for all.

    Attributes:
        stops: what this rank wants, and what all have agreed on.
    """

    def __init__(self, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
        super().__init__(comm, **waits)
        self.stops = Stops()
        self._collectives: tuple[Collective, ...] = ()
        self._stop_period: int | None = None
        self._stop_watch: StopWatch | None = None

    @property
    @abstractmethod
    def collective(self) -> Collective:
        """The collective that averages."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The next version that this rank calls."""

    @property
    def carries_stops(self) -> bool:
        """Whether what is averaged tells all ranks, at one version, that one of them wants to stop.

        Where it does not, a sum of one number is made beside it, see `watch_stops`.
        """
        return False

    @property
    def may_be_late(self) -> bool:
        """Whether a rank may come too late with all that it tells: that is watched, too."""
        return False

    @property
    def unheard(self) -> bool:
        """Whether this rank's latest version has told nobody that it wants to stop: it was late."""
        return False

    def stop_period(self) -> int:
        """Return the versions from one look to the next, where averages do not carry what is told.

        Nobody waits if no rank can be as many ahead of another.
        """
        options = getattr(self.collective, "options", None)
        return 1 + int(getattr(options, "window", None) or WINDOW)

    def request_stop(self) -> None:
        """See `wagma.DistributedOptimizer.request_stop`."""
        if not self.carries_stops and self._stop_watch is None:
            raise RuntimeError(
                f"request_stop() with {type(self).__name__}, whose ranks do not average all "
                "together: call watch_stops() on all ranks before the first step, as "
                "wagma.preemption.Preemption does"
            )
        self.stops.wanted = True

    def watch_stops(self, every: SupportsIndex | None = None) -> None:
        """See `wagma.DistributedOptimizer.watch_stops`."""
        told = self.carries_stops and not self.may_be_late
        if told or self._stop_watch is not None:
            return

        def chosen() -> tuple[int, int]:
            period = self.stop_period() if every is None else check_count("every", every, 1)
            return period, self.version

        with self.meet() as meeting:
            found = meeting.exchange(chosen, last=True)
        if any(its != found[0] for its in found):
            raise RuntimeError(
                "watch_stops() on ranks that are at different versions, or have passed different "
                f"numbers; they have [every, version] = {found}: call it alike on all ranks, "
                "before the first step or after synchronize()"
            )
        self._stop_period = found[0][0]
        self._watch_again()

    def see_version(self) -> None:
        """See that a step, or a synchronisation, has made its versions."""
        if self._stop_watch is not None:
            self._stop_watch.see(self.version)

    def _watch_again(self) -> None:
        """Make what watches, among the collectives, if there is to be one; collective."""
        if self._stop_period is not None:
            self._stop_watch = StopWatch(
                self.comm, self.stops, self._stop_period, self.version, **self.waits
            )
            self._collectives = (*self._collectives, self._stop_watch)

    def _restart_watch(self) -> None:
        """Go on at another version, the same on all ranks; collective."""
        if self._stop_watch is not None:
            self._stop_watch.restart(self.version)
