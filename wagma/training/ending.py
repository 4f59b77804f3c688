"""The agreement of all ranks to end a training."""

from typing import SupportsIndex

from wagma.training.blocks import BlocksOptimizer


class EndingOptimizer(BlocksOptimizer):
    """The part of a `wagma.DistributedOptimizer` that stops all ranks when one wants to."""

    def request_stop(self) -> None:
        """Request the end of the training, as after a signal; local, from any thread.

        The next versions carry the request, and `stopping` becomes true on all ranks alike. Loops
        have to test it, see `wagma.preemption.Preemption`.

        Without `watch_stops` a late rank of EagerSGD, KSync, KAsync or FastestK makes passive
        versions in the same step until its request is in an average. Request the end before the
        last versions of the training, because other ranks may leave after them.

        Raises:
            RuntimeError: no average is over all ranks, and `watch_stops` was not called.
        """
        self._algorithm.request_stop()

    @property
    def stopping(self) -> bool:
        """Whether all ranks have agreed to end the training here; it stays true.

        It becomes true after the same version on all ranks: with algorithms that average gradients
        the version with the request; with those that average models the next version over all
        ranks; with `watch_stops` a multiple of its versions. With ``missed="fast-forward"`` and no
        `sync_period` ranks may then be at different versions. If a step evaluates its closure
        several times, it becomes true at the step's end.
        """
        return self._algorithm.stops.agreed

    def watch_stops(self, every: SupportsIndex | None = None) -> None:
        """Enable `request_stop` for algorithms that never average all ranks; collective.

        With these (ADPSGD, DPSGD, SGP, WAGMA and LocalSGD without `sync_period`, DiLoCo in groups,
        and your own) the ranks sum one number beside their averages: they post the sum every so
        many versions, and read it when they post the next one. The same holds for algorithms that
        leave late ranks out (EagerSGD, KSync, KAsync, FastestK), because a rank may always be late.
        For the other algorithms the call changes nothing.

        Args:
            every: versions between two sums. None: so many that no rank waits, because ranks cannot
                be that far apart: the window plus one; with DPSGD and SGP the number of ranks plus
                one. With DiLoCo in groups two periods: a rank further ahead waits, as it does with
                a smaller number. The training ends at most twice as many versions after the
                request.

        Raises:
            RuntimeError: the ranks are at different versions, or passed different numbers.
        """
        self._check_call("watch_stops()")
        self._algorithm.watch_stops(every)
