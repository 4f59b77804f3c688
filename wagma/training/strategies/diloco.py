"""DiLoCo: local steps, and an outer optimizer that steps with what they changed on average."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import Options, PartialAllreduce
from wagma.collectives.options import Quorum, check_switch
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

__all__ = ["DiLoCo"]


class DiLoCo(PostedAveraging, LocalSGD):
    """Makes `sync_period` steps of its own, and then an outer step with what they changed.

    Of Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023).
    A period starts at the anchor, a model that all ranks have. At its end the mean over the ranks
    of anchor - model is the gradient with which the outer optimizer steps the anchor. The anchor is
    then the model, from which the next period starts. `synchronize` ends a period early.

    Versions and weights are those of `LocalSGD`. Where all weights of a period are 0 there is no
    outer step. With the `DistributedOptimizer` the outer optimizer is made, `outer` of this object,
    for learning-rate schedules::

        torch.optim.lr_scheduler.CosineAnnealingLR(algorithm.outer, periods)  # a step a period

    Args:
        comm: the ranks that train together; "auto": see `PartialAllreduce`.
        sync_period: versions from one outer step to the next, H; None: only `synchronize` makes
            one.
        outer: makes the outer optimizer, given a list of one parameter, the flat anchor; the same
            on all ranks. None: ``SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)``, the
            paper's; with `overlap` or `group_size` ``lr=0.3, momentum=0.5``, since an outer
            gradient that is a period old, or of some ranks, makes the paper's diverge.
        overlap: the changes of a period are averaged during the next one, and applied at its end:
            nobody waits for communication, and the outer gradient is one period old.
        group_size: average the changes in wait-avoiding groups of so many ranks, others in each
            period, as `WAGMA` does models; anchors then differ between ranks until `synchronize`,
            which averages them, too; no rank is more than 64 periods ahead of another. None:
            average over all ranks, waiting for all.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. What is wrong with the other arguments is raised, on every rank, when
        the optimizer is made.
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
        """The outer optimizer, of one parameter, the flat anchor; made with the inner one's."""
        return self._anchor.optimizer

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: every `sync_period` versions."""
        return self.group_size is None and super().carries_stops

    def stop_period(self) -> int:
        """Return two periods in groups, where a rank may be 64 ahead: few are."""
        return 2 * (self.sync_period or 0) or super().stop_period()

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        check_switch("overlap", self.overlap)
        Options(group_size=self.group_size).engine(self.size, 0, 0)  # raises what is wrong with it
        own = {"overlap": self.overlap, "group_size": self.group_size}
        return super().arguments() | own | {"outer": self._anchor.describe()}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective; the anchor and the state of the outer optimizer grow."""
        like = VersionedArray.like(parameters.flat).memory
        quorum: Quorum = 1 if self.wait_avoiding else "all"
        collective = PartialAllreduce(
            self.comm, like, group_size=self.group_size, quorum=quorum, **self.waits
        )
        self._keep_in(collective, like.dtype)
        self._anchor.grow(parameters.flat)
        return (collective,)

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Remember where a period begins."""
        self._anchor.begin(self.parameters.flat)
        return loss

    def after_step(self) -> None:
        """Make an outer step where a period ends."""
        self.before_step(None)  # a step without gradients, which has changed nothing, may begin
        super().after_step()

    def synchronize(self, *, final: bool = True) -> None:
        """End the period: average the changes, and step the anchor, which is the new model."""
        self.before_step(None)
        model, anchor, later = self.parameters.flat, self._anchor.flat, self.overlap and not final
        changes = anchor - model
        self._step_outer()  # with the changes of the last period, where they were posted
        self._average(changes, self._mean_weight(), later=later, everybody=final)
        if not later:
            self._due &= bool(self._weights)  # of no step no change is applied
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
        """Step the anchor with the average, if there is one."""
        changes = self._take()
        if changes is not None:
            self._anchor.step(changes)

    def restart(self, version: int) -> None:
        """Pass through versions until groups are those of the period of `version`."""
        if self.wait_avoiding:
            pass_empty(self.collective, self._array.memory, version // (self.sync_period or 1))

    def state(self) -> dict[str, Any]:
        """Return the outer optimizer's state, and what there is of a period; waits for its average.

        What others could still use in groups cannot be saved, nor with `overlap` the outcome of the
        average that was posted: `outcome` is None at the first period's end after a resume.
        """
        return super().state() | self._anchor.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what was saved."""
        super().load_state(state)
        self._anchor.load_state(state)

    def __repr__(self) -> str:
        return (
            f"DiLoCo({plural(self.size, 'rank')}, sync_period={self.sync_period}, "
            f"overlap={self.overlap}, group_size={self.group_size})"
        )
