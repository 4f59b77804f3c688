"""WAGMA-SGD: wait-avoiding group model averaging (Algorithm 2 of the paper)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from wagma.algorithms.base import Algorithm
from wagma.algorithms.cycles import group_cycle
from wagma.collectives import PartialAllreduce
from wagma.collectives.options import Activation, Grouping, Missed, Transport
from wagma.flat import FlatParameters

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["WAGMA", "default_group_size"]


def default_group_size(size: int) -> int:
    """The group size nearest above the paper's sqrt(P) that is a power of two, at most P.

    Args:
        size: ranks P, >= 1.
    """
    doublings = 0
    while 4**doublings < size:
        doublings += 1
    return int(min(size, 2**doublings))


class WAGMA(Algorithm):
    """Averages the model after every local step, within groups that change, waiting for nobody.

    At version t each rank makes a step of its own optimizer and calls the collective (Algorithm 2):
    the first rank of a group that arrives makes the group's average from the newest models of its
    members. A rank whose model came too late merges its own into that average (line 13). Every
    `sync_period` versions all ranks average their new models and wait for each other (line 16):
    no model is older than that.

    Only parameters are averaged. Momentum and other state of the inner optimizer stay each rank's
    own, and so do buffers such as BatchNorm's statistics: average those of the ranks, or recompute
    them, before a model with BatchNorm is evaluated.

    Args:
        comm: the ranks that train together, P of them; None: those that a launcher such as torchrun
            started on this machine, see `PartialAllreduce`.
        group_size: largest number of ranks in a group, 1 to P; None: sqrt(P), see
            `default_group_size`, or 2 with grouping="pairs".
        sync_period: versions from one synchronisation to the next, the paper's tau; None: never.
        grace: seconds that a version stays open for members that are about to arrive, or "auto".
        missed: what a rank does that is several versions behind. "once": it averages with the
            newest model and calls the missed versions all the same; "fast-forward": it goes on with
            the version after that model, never past a synchronisation. Loops then count `version`,
            a rank that is slow all the time makes fewer steps, and learning-rate schedules follow
            `version` as well, see `DistributedOptimizer`.
        activation: whose arrival starts a version. "group": a member's, for its own group; "world":
            any rank's, for all groups. The paper's algorithm to the letter is "world" with grace=0.
        grouping: "dynamic": groups change so that updates spread fastest; "fixed": they stay;
            "pairs": two ranks each, drawn per version from `seed` (group_size is 2).
        window: versions that a rank may be ahead of the slowest; None: `sync_period`, 64 without
            one.
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait.
        seed: of the collective's random draws, the same on all ranks.
        transport: "shm", "mpi" or "auto", see `wagma.collectives.Options`.

    Raises:
        what `Algorithm` does. What is wrong with the other arguments is raised, on every rank, when
        the optimizer is made.
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None,
        group_size: int | None = None,
        sync_period: int | None = 10,
        *,
        grace: float | Literal["auto"] = "auto",
        missed: Missed = "once",
        activation: Activation = "group",
        grouping: Grouping = "dynamic",
        window: int | None = None,
        timeout: float | None = None,
        stall_warning: float = 60.0,
        seed: int = 0,
        transport: Transport = "auto",
    ) -> None:
        super().__init__(comm, timeout=timeout, stall_warning=stall_warning, transport=transport)
        if group_size is None:
            pairs = grouping == "pairs"
            group_size = min(self.size, 2) if pairs else default_group_size(self.size)
        self.group_size = group_size
        self.sync_period = sync_period
        self._grace = grace
        self._missed = missed
        self._activation = activation
        self._grouping = grouping
        self._window = window
        self._seed = seed
        self.wait_avoiding = True

    def _connect(self, parameters: FlatParameters) -> PartialAllreduce:
        return PartialAllreduce(
            self.comm,
            parameters.flat,
            group_size=self.group_size,
            quorum=1,
            grace=self._grace,
            missed=self._missed,
            activation=self._activation,
            grouping=self._grouping,
            sync_period=self.sync_period,
            window=self._window,
            timeout=self._timeout,
            stall_warning=self._stall_warning,
            seed=self._seed,
            transport=self._transport,
            name="WAGMA",
        )

    def after_step(self) -> None:
        """Averages the new model with the group's."""
        self.outcome = self.collective.allreduce(self.parameters.flat)

    def synchronize(self) -> None:
        """Averages the models of all ranks."""
        self.outcome = self.collective.sync(self.parameters.flat)

    def resume(self, version: int) -> None:
        """Continues the count at `version`, with its groups and synchronisations.

        The collective passes through versions without weight until its groups and synchronisations
        are those of `version` (pairs, which are drawn, stay others): at least one, so that no
        average ever holds what the ranks had published before, which is older than what is loaded.
        """
        super().resume(version)
        groups = group_cycle(self.size, self.group_size, self._grouping)
        cycle = math.lcm(groups, self.sync_period or 1)
        empty = (version - self.collective.version) % cycle or cycle
        for _ in range(empty):
            self.collective.sync(self.parameters.flat, weight=0.0)
        self._base -= empty

    def __repr__(self) -> str:
        return (
            f"WAGMA({self.size} ranks, group_size={self.group_size}, "
            f"sync_period={self.sync_period})"
        )
