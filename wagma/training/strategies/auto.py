"""AllreduceSGD while ranks are alike, WAGMA while it pays not to wait for slow ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
import torch
from torch.optim import Optimizer

from wagma.inject.checks import check_count
from wagma.launch.logs import RankLogger
from wagma.profile import TrainingProfile, load
from wagma.theory.checks import check_time
from wagma.training.clock import Clock
from wagma.training.flat import FlatParameters
from wagma.training.ranks import NamedWaits, Waits
from wagma.training.same_state import share_state
from wagma.training.strategies.allreduce import AllreduceSGD
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.switching import (
    LEAST_STEPS,
    Choice,
    MeasuredSteps,
    ReviewPace,
    choose,
    group_sizes,
    most_gained,
    preload,
)
from wagma.training.strategies.table import Table
from wagma.training.strategies.times import LATEST, StepTimes
from wagma.training.strategies.wagma import WAGMA
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

T = TypeVar("T")


class Auto(Algorithm):
    """Start as AllreduceSGD, and train with WAGMA while that is worth it.

    Each rank measures how long its steps compute, wait and communicate. Every `review_period`
    versions the ranks share these times. Where waiting and communication cost less than `gain`,
    that is all. Otherwise rank 0 simulates AllreduceSGD and WAGMA with groups of 2, of sqrt(P) and
    of all ranks (`wagma.simulate`), milliseconds in which the others wait. All ranks switch to
    WAGMA at one version if its throughput is predicted to be higher by `gain`. If it is not,
    simulations become rarer, down to one in 16 reviews, until waiting and communication cost more.

    The ranks return to AllreduceSGD at a synchronisation if the measured throughput is not higher
    by a third of `gain`. Each return doubles the versions until AllreduceSGD is reviewed again.

    Before the first switch each step has the bits of `AllreduceSGD`. At each switch the models are
    equal on all ranks. On return the inner optimizer's state, such as momentum, which WAGMA keeps
    local, becomes that of rank 0 everywhere.

    A training that averages gradients before its steps (``opt.average_gradients()``,
    ``opt.clip_grad_norm_()``) stays synchronous: WAGMA cannot do that. It also stays so while a
    rank has left, or takes part without data.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        profile: of an earlier training with as many ranks, a `wagma.profile.TrainingProfile` or the
            path of one that rank 0 reads: the first choice is then made when the optimizer is
            created. None: at the first review.
        sync_period: of WAGMA.
        gain: share of throughput that is worth a switch, > 0.
        review_period: versions between two reviews, 32 at least.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Attributes:
        active: the algorithm that trains now, an `AllreduceSGD` or a `WAGMA`.
        times: this rank's steps since the latest review, the last 64 of them.

    Raises:
        what `Algorithm` does; creating the optimizer raises TypeError and ValueError for a wrong
        argument, and what `wagma.profile.load` does.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        profile: TrainingProfile | str | os.PathLike[str] | None = None,
        *,
        sync_period: int = 10,
        gain: float = 0.1,
        review_period: int = 64,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self.profile = profile
        self.gain = gain
        self.review_period = review_period
        self.active: Algorithm = AllreduceSGD(comm, **waits)
        self._waits_given = waits
        self._sync_period = sync_period
        self.times = StepTimes(Clock(None))
        self._choice = Choice()
        self._due = self._pause = review_period
        self._pace = ReviewPace(review_period)
        self._table: Table | None = None
        self._switches = 0
        self._averages_before_steps = False
        self._inner: Optimizer | None = None
        self._loaded: dict[str, Any] | None = None
        self._log = RankLogger(__name__, self.rank, self.size)

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        return {
            "sync_period": check_count("sync_period", self._sync_period, 1),
            "gain": check_time("gain", self.gain, positive=True),
            "review_period": check_count("review_period", self.review_period, 32),
            "profile": self.profile is not None,
        }

    # ---- the active algorithm --------------------------------------------------------------------
    def attach(self, parameters: FlatParameters, inner: Optimizer) -> None:
        """Create the collectives, and make a first choice by the profile; collective."""
        if self.rank == 0:
            preload()  # now, and not while others wait for a review
        self._inner = inner
        super().attach(parameters, inner)
        if self.profile is not None:

            def advised() -> dict[str, Any] | None:
                if self.rank != 0 or self.profile is None:
                    return None
                given = self.profile
                profile = given if isinstance(given, TrainingProfile) else load(given)
                return asdict(self._choose(_measured(profile, self.size)))

            with self.meet() as meeting:
                chosen = meeting.exchange(advised, last=True)[0]
            self._adopt(Choice(**chosen))

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collectives of the algorithm that was chosen."""
        group_size, given = self._choice.group_size, self._waits_given
        if group_size is None:
            self.active = AllreduceSGD(self.comm, **given)
        else:
            self.active = WAGMA(self.comm, group_size, self._sync_period, **given)
        self.wait_avoiding = self.active.wait_avoiding
        self.active.stops = self.stops
        self.active.serve(parameters)
        self.times.clock = Clock(parameters.layout.device)
        self.times.clear()
        waits: NamedWaits = {**self.waits, "name": "times of Auto"}
        self._table = Table(self.comm, self.rank, self.size, 2 + 4 * LATEST, **waits)
        return (*self.active._collectives, self._table)

    def release(self) -> None:
        """Release the collectives' memory."""
        self.active.release()

    def counter(self) -> int:
        """Return the number of versions since `connect`."""
        return self.active.version

    def restart(self, version: int) -> None:
        """Advance the collectives to a state in which `version` can follow; collective."""
        self.active.restart(version)
        self.times.pause()

    @property
    def carries_stops(self) -> bool:
        """Whether all ranks average together: in every version, or every `sync_period`."""
        return True

    @property
    def options(self) -> None:
        """None: those of the collective change with the active algorithm."""

    # ---- steps -----------------------------------------------------------------------------------
    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Average gradients, if that is what the active algorithm averages."""
        return self._call(lambda: self.active.before_step(loss))

    def after_step(self) -> None:
        """Average models, if that is what the active algorithm averages; review when due."""
        self._call(self.active.after_step)
        self.times.end(self.version)
        self._review()

    def passive_step(self, inner: Optimizer) -> None:
        """Make a version without a gradient of this rank."""
        self._call(lambda: self.active.passive_step(inner))
        self.times.pause()
        self._review()

    def average_gradients(self, scale: float = 1.0) -> None:
        """Average the gradients over all ranks: one version."""
        self._averages_before_steps = True
        self._call(lambda: self.active.average_gradients(scale))

    def synchronize(self, *, final: bool = True) -> None:
        """Make the parameters equal on all ranks."""
        self._call(lambda: self.active.synchronize(final=final))
        self.times.pause()

    def _call(self, function: Callable[[], T]) -> T:
        """Return what `function`, of the active algorithm, returns, and take over its outcome."""
        self.active.weight = self.weight
        result = self.times.call(function, self.active)
        self.outcome = self.active.outcome
        return result

    # ---- choices ---------------------------------------------------------------------------------
    def _review(self) -> None:
        """Choose what to train with, if this version is one of all ranks and a review is due."""
        version, outcome = self.version, self.outcome
        if version < self._due or not group_sizes(self.size):
            return
        if self._choice.group_size is not None and version % self._sync_period:
            return
        if outcome is None or len(set(outcome.contributors)) < self.size:
            return  # the same on all ranks, see `Outcome.contributors`
        chosen = self._reviewed(version)
        self.times.clear()
        if chosen.group_size is None and self._choice.group_size is not None:
            self._pause *= 2
        self._due = version + (self._pause if chosen.group_size is None else self.review_period)
        self._adopt(chosen)

    def _reviewed(self, version: int) -> Choice:
        """Return the choice by the latest times of all ranks, the same on all ranks; collective."""
        assert self._table is not None
        steps = self.times.steps.items()
        own = [self._averages_before_steps, len(steps)]
        table = self._table.share([*own, *chain(*((when, *parts) for when, parts in steps))])
        stays, counts = table[:, 0].any(), table[:, 1].astype(int)
        rows = [
            row[2 : 2 + 4 * n].reshape(n, 4).tolist() for row, n in zip(table, counts, strict=True)
        ]
        most = None if stays else most_gained(rows)
        if most is None:
            return self._choice
        if self._choice.group_size is None and not self._pace.simulates(version, most, self.gain):
            return self._choice
        chosen: Sequence[float] = ()
        if self.rank == 0:
            layout = self.parameters.layout
            measured = MeasuredSteps.common(rows, layout.numel * layout.dtype.itemsize)
            made = self._choice if measured is None else self._choose(measured)
            chosen = (made.group_size or 0, made.gain, made.seconds)
        size, gain, seconds, *_ = self._table.share(chosen)[0].tolist()
        return Choice(int(size) or None, gain, seconds)

    def _choose(self, measured: MeasuredSteps) -> Choice:
        return choose(self._choice, measured, self._sync_period, self.gain)

    def _adopt(self, chosen: Choice) -> None:
        """Train with what was chosen from this version on, the same on all ranks; collective."""
        before, self._choice = self._choice, chosen
        if chosen.group_size == before.group_size:
            return
        old = repr(self.active)
        self.reattach(self.parameters)
        self._switches += 1
        self._pace = ReviewPace(self.review_period)
        if chosen.group_size is None:
            assert self._inner is not None
            share_state(self, self._inner)
        if self.rank == 0:
            self._log.info(
                "%r instead of %s from version %d on: %+.0f%% of throughput with WAGMA",
                *(self.active, old, self.version, 100 * chosen.gain),
            )

    # ---- counters, checkpoints -------------------------------------------------------------------
    def stats(self) -> dict[str, int | float]:
        """Return the active algorithm, the gain as last predicted or measured, and the switches."""
        return {
            "wait_avoiding": int(self.wait_avoiding),
            "group_size": self._choice.group_size or 0,
            "gain": self._choice.gain,
            "switches": self._switches,
        }

    def state(self) -> dict[str, Any]:
        """Return what the active algorithm is, and when the next review is due."""
        choice = {**asdict(self._choice), "group_size": self._choice.group_size or 0}
        return {**choice, "due": self._due, "pause": self._pause}

    def load_state(self, state: dict[str, Any]) -> None:
        """Keep the state for `after_load`."""
        self._loaded = dict(state)

    def after_load(self) -> None:
        """Go on with the algorithm that was active; collective.

        Ranks that saved before and after a switch go on with WAGMA, which needs no equal models.
        """
        loaded, self._loaded = self._loaded, None
        with self.meet() as meeting:
            states = [one for one in meeting.exchange(lambda: loaded, last=True) if one]
        if not states:
            return
        state = max(states, key=lambda one: (one["group_size"], one["due"]))
        self._due, self._pause = state["due"], state["pause"]
        group_size = min(state["group_size"], self.size if self.size > 1 else 0) or None
        self._adopt(Choice(group_size, state["gain"], state["seconds"]))

    def __repr__(self) -> str:
        return f"Auto({plural(self.size, 'rank')}, now {self.active!r})"


def _measured(profile: TrainingProfile, size: int) -> MeasuredSteps:
    """Return the times of a profile; raise ValueError if it is of another number of ranks."""
    if profile.ranks != size:
        raise ValueError(
            f"profile is of {plural(profile.ranks, 'rank')}, and {size} train: record one with "
            "wagma.Profile on as many, or leave it out"
        )
    if profile.steps < LEAST_STEPS:
        raise ValueError(
            f"profile has {plural(profile.steps, 'step')}: record {LEAST_STEPS} or more"
        )
    return MeasuredSteps(
        np.maximum(profile.input + profile.compute, 1e-6),
        float(np.median(profile.communication)),
        float(profile.durations.mean()),
        profile.model_bytes,
    )
