"""WAGMA-SGD: wait-avoiding group model averaging (Algorithm 2 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

from wagma.collectives import PartialAllreduce
from wagma.collectives.option_values import check_switch
from wagma.collectives.options import Activation, Missed
from wagma.collectives.topology import default_group_size
from wagma.training.ranks import Waits
from wagma.training.strategies.groups import GroupAveraging
from wagma.units import plural

if TYPE_CHECKING:
    import torch

    from wagma.collectives.rendezvous.meeting import Comm


class WAGMA(GroupAveraging):
    """Average the model after every local step, without waiting, in groups that keep changing.

    At version t each rank makes a step of its own optimizer and calls the collective (Algorithm 2):
    the first rank of a group to arrive computes the group's average from the newest models of its
    members. A late rank merges its own model into that average (line 13). Every `sync_period`
    versions all ranks average their new models and wait for each other (line 16), which bounds the
    age of models in an average.

    Only parameters are averaged. Momentum and other state of the inner optimizer stay local, and so
    do buffers such as BatchNorm's statistics: average the buffers or recompute them before
    evaluating a model with BatchNorm.

    The paper's switches (Sec. 4): alpha (wait-avoiding group allreduce) is the default; beta, an
    ordinary group allreduce, is ``wait_avoiding=False``; neither, which is Local SGD, is
    ``group_size=1``. Fixed groups, one of its ablations (Sec. 5.2), are ``dynamic_groups=False``.

    Args:
        comm: the P ranks that train together; "auto": those that the launcher started, over MPI or
            as torchrun does; see `PartialAllreduce`.
        group_size: largest number of ranks in a group, 1 to P; None: sqrt(P), see
            `default_group_size`.
        sync_period: versions from one synchronisation to the next, the paper's tau; None: never.
        dynamic_groups: change groups with the version, so that updates spread fastest; False: keep
            the groups of version 0.
        wait_avoiding: start a version when the first member of a group arrives; False: when the
            last one arrives. All members are fresh then, and wait for the slowest of their group.
        grace: seconds that a version waits for members that are about to arrive, or "auto".
        missed: what a rank does that is several versions behind. "once": average with the newest
            model, and call the missed versions all the same. "fast-forward": go on with the version
            after that model, never past a synchronisation. Loops then have to count `version`, a
            persistently slow rank makes fewer steps, and learning-rate schedules have to follow
            `version`, see `DistributedOptimizer`.
        activation: the arrival that starts a version. "group": a member's arrival starts its own
            group; "world": any rank's arrival starts all groups. The paper's algorithm is "world"
            with grace=0.
        window: versions that a rank may be ahead of the slowest; None: `sync_period`, or 64 without
            it.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. Creating the optimizer raises errors in the other arguments, on every
        rank; grace, missed and activation are errors with ``wait_avoiding=False``, where they have
        no meaning.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        group_size: int | None = None,
        sync_period: int | None = 10,
        *,
        dynamic_groups: bool = True,
        wait_avoiding: bool = True,
        grace: float | Literal["auto"] = "auto",
        missed: Missed = "once",
        activation: Activation = "group",
        window: int | None = None,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(
            comm,
            sync_period=sync_period,
            grouping="dynamic" if dynamic_groups else "fixed",
            **waits,
        )
        self.group_size = default_group_size(self.size) if group_size is None else group_size
        self.dynamic_groups = dynamic_groups
        self.wait_avoiding = wait_avoiding
        self._grace = grace
        self.missed: Missed = missed
        self._activation: Activation = activation
        self._window = window

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        switches = {"dynamic_groups": self.dynamic_groups, "wait_avoiding": self.wait_avoiding}
        for name, value in switches.items():
            check_switch(name, value)
        if not self.wait_avoiding:
            for name, chosen, default in (
                ("grace", self._grace, "auto"),
                ("missed", self.missed, "once"),
                ("activation", self._activation, "group"),
            ):
                if chosen != default:
                    raise ValueError(
                        f"{name}={chosen!r} and wait_avoiding=False, where every rank waits for "
                        f"its whole group: leave {name} out"
                    )
        return {**switches}

    def _make(self, like: torch.Tensor) -> PartialAllreduce:
        return PartialAllreduce(
            self.comm,
            like,
            group_size=self.group_size,
            quorum=1 if self.wait_avoiding else "all",
            grace=self._grace,
            missed=self.missed,
            activation=self._activation,
            grouping=self._grouping,
            sync_period=self.sync_period,
            window=self._window,
            **self.waits,
        )

    def __repr__(self) -> str:
        switches = "".join(
            f", {name}=False"
            for name in ("dynamic_groups", "wait_avoiding")
            if not vars(self)[name]
        )
        return (
            f"WAGMA({plural(self.size, 'rank')}, group_size={self.group_size}, "
            f"sync_period={self.sync_period}{switches})"
        )
