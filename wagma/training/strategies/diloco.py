"""DiLoCo: local steps, and an outer optimizer that steps with what they changed on average."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import Options, Outcome, PartialAllreduce
from wagma.training.agreed import Agreed
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.anchor import Anchor, MakeOuter, nesterov
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.cycles import group_cycle, pass_empty
from wagma.training.strategies.local import LocalSGD
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives import Request
    from wagma.collectives.meeting import Comm, Meeting

__all__ = ["DiLoCo"]


class DiLoCo(LocalSGD):
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
        self._changes = torch.empty(0)  # of the rank, and then their average
        self._request: Request | None = None  # that averages them
        self._given: Outcome | None = None  # what the average has come from
        self._due = False  # it is there, and no outer step has used it

    @property
    def outer(self) -> Optimizer:
        """The outer optimizer, of one parameter, the flat anchor; made with the inner one's."""
        return self._anchor.optimizer

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        if not isinstance(self.overlap, bool):
            raise TypeError(f"overlap={self.overlap!r} must be True or False")
        Options(group_size=self.group_size).engine(self.size, 0, 0)  # raises what is wrong with it
        own = {"overlap": self.overlap, "group_size": self.group_size}
        return super().arguments() | own | {"outer": self._anchor.describe()}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective; the anchor and the state of the outer optimizer grow."""
        quorum: Literal["all", 1] = "all" if self.group_size is None else 1
        flat = parameters.flat
        like = flat.new_zeros(flat.numel() + Agreed.SIZE)
        collective = PartialAllreduce(
            self.comm, like, group_size=self.group_size, quorum=quorum, **self.waits
        )
        self._memory = torch.from_numpy(collective.empty()).view(flat.dtype).zero_()
        changes = self._memory[: flat.numel()]
        changes[: self._changes.numel()] = self._changes
        self._changes, self._at = changes, Agreed(self._memory[flat.numel() :])
        self._anchor.grow(flat)
        return (collective,)

    @property
    def collective(self) -> PartialAllreduce:
        """The collective; its own counter starts at 0 in every process."""
        return self._connected(PartialAllreduce)

    def counter(self) -> int:
        """Return the versions of the collective, a posted one with them, and the local steps."""
        return super().counter() + (self._request is not None)

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
        flat, anchor = self.parameters.flat, self._anchor.flat
        weight = fmean(self._weights or [1.0])
        changes = anchor - flat
        self._step_outer()  # with those of the last period, where one was posted
        self._changes.copy_(changes)
        self._tell_version()
        if self.overlap and not final:
            self._request = self.collective.iallreduce(self._memory, weight)
        else:
            call = self.collective.sync if final else self.collective.allreduce
            self._take(call(self._memory, weight), everybody=final)
            self._due &= bool(self._weights)  # of no step no change is applied
            self._step_outer()
        if final and self.group_size is not None:
            self._changes.copy_(anchor)
            self.collective.sync(self._memory)
            anchor.copy_(self._changes)
            self.count_versions(-1)
        flat.copy_(anchor)
        self.parameters.written()
        self._weights.clear()
        self._anchor.begun = False

    def _step_outer(self) -> None:
        """Step the anchor with the average that was posted, if there is one."""
        self._finish()
        if self._due:
            self._anchor.step(self._changes)
            self._due = False
        self.outcome = self._given

    def _finish(self) -> None:
        """Wait for what was posted."""
        if self._request is not None:
            request, self._request = self._request, None
            self._take(request.wait())

    def _take(self, outcome: Outcome, *, everybody: bool = False) -> None:
        self._given, self._due = outcome, outcome.weight > 0
        if everybody or self.group_size is None:
            self._check_versions()

    def meet(self) -> Meeting:
        """Return the ranks, when what was posted is complete: the collective is free then."""
        self._finish()
        return super().meet()

    def resume(self, version: int) -> None:
        """Continue the count at `version`; groups are those of its period."""
        super().resume(version)
        if self.group_size is not None:
            cycle = group_cycle(self.size, self.group_size, "dynamic")
            at = version // (self.sync_period or 1)
            self.count_versions(-pass_empty(self.collective, self._memory, at, cycle))

    def state(self) -> dict[str, Any]:
        """Return the outer optimizer's state, and what there is of a period; waits for its average.

        What others could still use in groups cannot be saved, nor with `overlap` the outcome of the
        average that was posted: `outcome` is None at the first period's end after a resume.
        """
        self._finish()
        average = self._changes.clone() if self._due else None
        return super().state() | self._anchor.state() | {"average": average}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what was saved."""
        super().load_state(state)
        self._anchor.load_state(state)
        self._due = state["average"] is not None
        if self._due:
            self._changes.copy_(state["average"])

    def release(self) -> None:
        """Let go of the collective's memory, with a copy of an average that is not used yet."""
        self._request = None
        self._changes = self._changes.clone() if self._due else torch.empty(0)

    def _leave(self) -> None:
        try:
            self._finish()
        finally:
            super()._leave()

    def __repr__(self) -> str:
        return (
            f"DiLoCo({plural(self.size, 'rank')}, sync_period={self.sync_period}, "
            f"overlap={self.overlap}, group_size={self.group_size})"
        )
