"""The end of a training on which the ranks agree."""

from __future__ import annotations

from typing import SupportsIndex

from wagma.training.blocks import BlocksOptimizer

__all__ = ["EndingOptimizer"]


class EndingOptimizer(BlocksOptimizer):
    """The part of a `wagma.DistributedOptimizer` that stops all ranks when one wants to."""

    def request_stop(self) -> None:
        """Say that this rank wants the training to end, as after a signal; local, from any thread.

        It travels with what the next versions send anyway, and `stopping` becomes true on all ranks
        alike. Loops test that, see `wagma.preemption.Preemption`.

        Without `watch_stops` a rank of EagerSGD, KSync, KAsync or FastestK that came too late with
        it makes passive versions in the same step until it is heard: ask before the last versions
        of the training, which others may have left by then.

        Raises:
            RuntimeError: no average is over all ranks, and `watch_stops` was not called.
        """
        self._algorithm.request_stop()

    @property
    def stopping(self) -> bool:
        """Whether all ranks have agreed to end the training here; it stays true.

        They see it after the same version: the one that holds the request, with algorithms that
        average gradients; the next one that averages all models; or a multiple of the versions of
        `watch_stops`. With ``missed="fast-forward"`` and no `sync_period` ranks may then be at
        different versions. With a closure that is evaluated several times, at the step's end.
        """
        return self._algorithm.stops.agreed

    def watch_stops(self, every: SupportsIndex | None = None) -> None:
        """Make `request_stop` possible with algorithms that never average all ranks; collective.

        These (ADPSGD, DPSGD, SGP, WAGMA and LocalSGD without `sync_period`, DiLoCo in groups, and
        your own) sum one number beside their averages, which is posted every so many versions and
        looked at when the next one is. So do those that go on without late ranks (EagerSGD, KSync,
        KAsync, FastestK), of which one may always be late. Others need no call, and it changes
        nothing.

        Args:
            every: versions; None: so many that nobody waits, as no rank can be so far behind: the
                window and one, the number of ranks and one with DPSGD and SGP. Two periods with
                DiLoCo in groups: a rank that is further ahead waits, as with a smaller number. The
                end comes at most twice so many versions after the request.

        Raises:
            RuntimeError: the ranks are at different versions, or have passed different numbers.
        """
        self._check_call("watch_stops()")
        self._algorithm.watch_stops(every)
