"""DiLoCo: local steps, and an outer optimizer that steps with their average change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import Options, PartialAllreduce
from wagma.collectives.option_values import check_switch
from wagma.collectives.options import Quorum
from wagma.training.agreed import VersionedArray
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.anchor import Anchor, MakeOuter, nesterov
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.cycles import pass_empty
from wagma.training.strategies.local import LocalSGD
from wagma.training.strategies.posted import PostedAveraging
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm


class DiLoCo(PostedAveraging, LocalSGD):
    """Makes `sync_period` steps of its own, and then an outer step with what they changed.

    From Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models"
    (2023). A period begins at the anchor, a model that all ranks share. At its end the outer
    optimizer steps the anchor with the mean of anchor - model over the ranks as its gradient. The
    new anchor is the model with which the next period begins. `synchronize` ends a period early.

    Versions and weights are those of `LocalSGD`. If all weights of a period are 0 there is no outer
    step. Creating the `DistributedOptimizer` creates the outer optimizer, ``algorithm.outer``, for
    learning-rate schedules::

        torch.optim.lr_scheduler.CosineAnnealingLR(algorithm.outer, periods)  # one step per period

    Args:
        comm: the ranks that train together; "auto": see `PartialAllreduce`.
        sync_period: versions from one outer step to the next, H; None: only `synchronize` makes
            outer steps.
        outer: function that creates the outer optimizer from a list of one parameter, the flat
            anchor; the same on all ranks. None: ``SGD(parameters, lr=0.7, momentum=0.9,
            nesterov=True)``, as in the paper; with `overlap` or `group_size` ``lr=0.3,
            momentum=0.5``, because an outer gradient that is a period old, or of a group only,
            diverges with the paper's values.
        overlap: average the changes of a period during the next one, and apply them at its end: no
            rank waits for communication, and the outer gradient is one period old.
        group_size: average the changes in wait-avoiding groups of at most so many ranks that change
            with every period, as `WAGMA` averages models. Anchors then differ between ranks until
            `synchronize`, which averages them too; ranks are at most 64 periods apart. None:
            average over all ranks, waiting for all of them.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. Creating the optimizer raises errors in the other arguments, on every
        rank.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        sync_period: int | None = 50,
        outer: MakeOuter | None = None,
        *,
        overlap: bool = False,
        group_size: int | None = None,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, sync_period, **waits)
        self.overlap = overlap
        self.group_size = group_size
        self.wait_avoiding = group_size is not None
        if outer is None:
            outer = nesterov(0.3, 0.5) if overlap or self.wait_avoiding else nesterov(0.7, 0.9)
        self._anchor = Anchor(outer)

    @property
    def outer(self) -> Optimizer:
        """The outer optimizer of the flat anchor; created with the `DistributedOptimizer`."""
        return self._anchor.optimizer

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every `sync_period` versions."""
        return self.group_size is None and super().carries_stops

    def stop_period(self) -> int:
        """Return two periods with groups: ranks may be 64 periods apart, but rarely are."""
        return 2 * (self.sync_period or 0) or super().stop_period()

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        check_switch("overlap", self.overlap)
        Options(group_size=self.group_size).engine(self.size, 0, 0)  # raises what is wrong with it
        own = {"overlap": self.overlap, "group_size": self.group_size}
        return super().arguments() | own | {"outer": self._anchor.describe()}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collective; add new parameters to the anchor and the outer optimizer."""
        like = VersionedArray.like(parameters.flat).memory
        quorum: Quorum = 1 if self.wait_avoiding else "all"
        collective = PartialAllreduce(
            self.comm, like, group_size=self.group_size, quorum=quorum, **self.waits
        )
        self._keep_in(collective, like)
        self._anchor.grow(parameters.flat)
        return (collective,)

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Begin a period if none has begun."""
        self._anchor.begin(self.parameters.flat)
        return loss

    def after_step(self) -> None:
        """Make an outer step at the end of a period."""
        self.before_step(None)  # a step without gradients may begin a period: it changed nothing
        super().after_step()

    def synchronize(self, *, final: bool = True) -> None:
        """End the period: average the changes, and step the anchor, which is the new model."""
        self.before_step(None)
        model, anchor, later = self.parameters.flat, self._anchor.flat, self.overlap and not final
        changes = anchor - model
        self._step_outer()  # with the changes that the last period posted
        self._average(changes, self._mean_weight(), later=later, all_ranks=final)
        if not later:
            self._due &= bool(self._weights)  # without steps there are no changes to apply
            self._step_outer()
        if final and self.wait_avoiding:  # anchors differ
            self._array.content.copy_(anchor)
            self.collective.sync(self._array.memory)
            anchor.copy_(self._array.content)
            self.count_versions(-1)
        model.copy_(anchor)
        self.parameters.written()
        self._weights.clear()
        self._anchor.begun = False

    def _step_outer(self) -> None:
        """Step the anchor with the average, if one is due."""
        changes = self._take()
        if changes is not None:
            self._anchor.step(changes)

    def restart(self, version: int) -> None:
        """Pass versions until the groups are those of the period of `version`."""
        if self.wait_avoiding:
            pass_empty(self.collective, self._array.memory, version // (self.sync_period or 1))

    def state(self) -> dict[str, Any]:
        """Return the states of the outer optimizer and of the period; waits for a posted average.

        Contributions that groups could still use cannot be saved. Neither can, with `overlap`, the
        outcome of a posted average: `outcome` is None after the first period that is resumed.
        """
        return super().state() | self._anchor.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        super().load_state(state)
        self._anchor.load_state(state)

    def __repr__(self) -> str:
        return (
            f"DiLoCo({plural(self.size, 'rank')}, sync_period={self.sync_period}, "
            f"overlap={self.overlap}, group_size={self.group_size})"
        )
