"""Agreement of all ranks of an algorithm on the end of a training."""

from abc import abstractmethod
from typing import SupportsIndex, Unpack

from wagma.collectives.rendezvous.meeting import Comm
from wagma.inject.checks import check_count
from wagma.training.ranks import Waits
from wagma.training.stopping import Stops, StopWatch
from wagma.training.strategies.membership import Membership

WINDOW = 64  # default window of the collectives: how many versions ranks may be apart


class AgreedEnd(Membership):
    """The part of an `Algorithm` that ends the training on all ranks when one rank asks for it.

    Attributes:
        stops: whether this rank requests the end, and whether all ranks have agreed on it.
    """

    def __init__(self, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
        super().__init__(comm, **waits)
        self.stops = Stops()
        self._stop_period: int | None = None
        self._stop_watch: StopWatch | None = None

    @property
    @abstractmethod
    def version(self) -> int:
        """The next version that this rank calls."""

    @property
    def carries_stops(self) -> bool:
        """Whether the averages carry stop requests to all ranks at one version.

        If not, `watch_stops` adds a sum of one number beside the averages.
        """
        return False

    @property
    def may_be_late(self) -> bool:
        """Whether a rank may be late every time, so that its stop requests need `watch_stops`."""
        return False

    @property
    def unheard(self) -> bool:
        """Whether this rank was late with its stop request, so that no other rank has it."""
        return False

    def stop_period(self) -> int:
        """Return the default number of versions between two checks of `watch_stops`.

        No rank waits if ranks cannot be that many versions apart.
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
        carried = self.carries_stops and not self.may_be_late
        if carried or self._stop_watch is not None:
            return

        def period_and_version() -> tuple[int, int]:
            period = self.stop_period() if every is None else check_count("every", every, 1)
            return period, self.version

        with self.meet() as meeting:
            pairs = meeting.exchange(period_and_version, last=True)
        if any(pair != pairs[0] for pair in pairs):
            raise RuntimeError(
                "watch_stops() on ranks that are at different versions, or have passed different "
                f"numbers; their [every, version] are {pairs}: call it alike on all ranks, "
                "before the first step or after synchronize()"
            )
        self._stop_period = pairs[0][0]
        self._watch_again()

    def see_version(self) -> None:
        """Note that a step or a synchronisation has made its versions."""
        if self._stop_watch is not None:
            self._stop_watch.see(self.version)

    def _watch_again(self) -> None:
        """Create the `StopWatch` after `watch_stops`; collective."""
        if self._stop_period is not None:
            self._stop_watch = StopWatch(
                self.comm, self.stops, self._stop_period, self.version, **self.waits
            )
            self._collectives = (*self._collectives, self._stop_watch)

    def _restart_watch(self) -> None:
        """Restart the `StopWatch` at another version, the same on all ranks; collective."""
        if self._stop_watch is not None:
            self._stop_watch.restart(self.version)
