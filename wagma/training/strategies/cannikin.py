"""Cannikin: batches as uneven as the ranks are, so that all finish together."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np
import torch
from torch.optim import Optimizer

from wagma.collectives import SyncAllreduce
from wagma.inject.checks import check_count
from wagma.launch.logs import RankLogger
from wagma.theory.cannikin import (
    Measured,
    NoiseScale,
    Plan,
    Planner,
    adascale,
    make_planner,
    noise_scale,
    sqrt_scaling,
)
from wagma.theory.cannikin.planners import Baseline, check_range
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.rates import ScaledRates
from wagma.training.strategies.allreduce import AllreduceSGD
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.step_clock import Parts, StepClock
from wagma.training.strategies.step_table import REMEMBERED, StepTable
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

__all__ = ["Cannikin"]

Scaling = Literal["adascale", "sqrt", "none"]

_LEAST_STEPS = 2  # that have to be measured for a plan
_NORMS = 2  # of this rank's gradient and of the mean
_ROW = len(Parts._fields) + _NORMS  # of the table that ranks share


class Cannikin(AllreduceSGD):
    """`AllreduceSGD` that divides the total batch so that all ranks finish together.

    Cannikin of Nie et al. (2024): each rank's times are learned while it trains, and the fastest
    batches follow from them. The gradient is that of the whole batch in one process: each rank's
    counts as many samples as it has. In the first epoch the batch is divided evenly, in the second
    by the time per sample, (8), then by the model. A rank that becomes slower is noticed in an
    epoch, and gets less from the next one on.

    The batches are in `plan`, also as ``opt.plan``, which the loop's sampler takes::

        algorithm = wagma.Cannikin(comm, 256)
        with wagma.DistributedOptimizer(inner, algorithm) as opt:
            sampler = wagma.data.UnevenBatchSampler(len(data), opt.plan.batches, rank, seed=0)
            loader = DataLoader(data, batch_sampler=sampler, collate_fn=wagma.data.collate(data))
            for epoch in range(epochs):
                sampler.set_epoch(epoch)
                sampler.set_batches(opt.plan.batches, from_step=sampler.next_step)
                for inputs, targets in loader:
                    opt.zero_grad()
                    opt.weight = len(inputs)
                    loss(model(inputs), targets).backward()  # the mean over the samples
                    opt.step()
                algorithm.replan()

    ``opt.weight`` is set in every step, before ``backward()``: the last step of an epoch has fewer
    samples, and loaders that draw ahead have some of an older plan. Not set it is the planned one.

    With a range as `batch_range` the total batch is chosen, too: the one with the largest goodput,
    throughput times the progress that a sample makes by the gradient noise scale, which is measured
    on the way. Learning rates belong to the smallest batch, and are multiplied while the inner
    optimizer steps; `scaling` says by what. Schedulers see them as they were.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        batch_range: samples of all ranks in a step; or (smallest, largest).
        epoch_steps: a new plan is made after so many steps; None: by `replan` alone.
        scaling: of learning rates with the total batch. "adascale", for SGD, and "sqrt", for Adam
            and its kin, as `wagma.theory.cannikin` has them. "none": by nothing.
        baseline: None, or what Cannikin is compared with: "even", "lb-bsp", "adaptdl", see
            `wagma.theory.cannikin.make_planner`.
        max_batch: samples that fit into this rank's memory; each rank passes its own. None: all.
        bucket_bytes: see `AllreduceSGD`.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Attributes:
        plans: all plans so far, the latest last; `measured` is there once the next one was made.

    Raises:
        what `AllreduceSGD` does; TypeError, ValueError: an argument is wrong; MismatchError: ranks
        have different ones; when the optimizer is made.
    """

    _timed = True

    def __init__(
        self,
        comm: Comm,
        batch_range: int | tuple[int, int],
        *,
        epoch_steps: int | None = None,
        scaling: Scaling = "adascale",
        baseline: Baseline | None = None,
        max_batch: int | None = None,
        bucket_bytes: int | None = 25 << 20,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, bucket_bytes, **waits)
        self.batch_range = batch_range
        self.epoch_steps = epoch_steps
        self.scaling = scaling
        self.baseline = baseline
        self.max_batch = max_batch
        self.plans: list[Plan] = []
        self._planner: Planner | None = None
        self._rates: ScaledRates | None = None
        self._clock = StepClock()
        self._norms: dict[int, tuple[float, float]] = {}  # of its gradient and the mean, by version
        self._adapts = False  # whether the total batch is chosen
        self._steps = 0  # since the latest plan
        self._kept = 0  # how often in turn a plan could not be made
        self._factor = 1.0

    @property
    def plan(self) -> Plan:
        """How the batch of the coming steps is divided.

        Raises:
            RuntimeError: this serves no optimizer yet.
        """
        if not self.plans:
            raise RuntimeError(
                "this Cannikin serves no optimizer yet, and has no plan: give it to "
                "wagma.DistributedOptimizer first"
            )
        return replace(self._current, measured=self._clock.mean)

    @property
    def _current(self) -> Plan:
        return self.plans[-1]

    @property
    def _planning(self) -> Planner:
        if self._planner is None:
            _ = self.plan  # which raises what is wrong
        assert self._planner is not None
        return self._planner

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        smallest, largest = check_range(self.batch_range, self.baseline)
        self._adapts = smallest < largest
        if self.epoch_steps is not None:
            self.epoch_steps = check_count("epoch_steps", self.epoch_steps, 3)
        if self.scaling not in get_args(Scaling):
            known = ", ".join(map(repr, get_args(Scaling)))
            raise ValueError(f"scaling={self.scaling!r} must be one of {known}")
        if self.max_batch is not None:
            self.max_batch = check_count("max_batch", self.max_batch, 1)
        own = ("batch_range", "epoch_steps", "scaling", "baseline")
        return {**super().arguments(), **{name: getattr(self, name) for name in own}}

    def attach(self, parameters: FlatParameters, inner: Optimizer) -> None:
        """Begin to serve the training of `inner`."""
        super().attach(parameters, inner)
        if self._adapts and self.scaling != "none":
            self._rates = ScaledRates(inner, lambda: self._factor)
        if self._adapts and self.scaling == "adascale" and "betas" in inner.defaults:
            self._warn(
                "scaling='adascale' is for SGD, and %s divides by the size of its gradients: take "
                "scaling='sqrt'",
                type(inner).__name__,
            )

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collectives, and the first plan."""
        if self._planner is None:
            with self.meet() as meeting:
                limits = meeting.exchange(lambda: self.max_batch, last=True)
            self._planner = make_planner(self.size, self.batch_range, limits, self.baseline)
            self._take(self._planner.first())
        ranks = SyncAllreduce(
            self.comm, np.zeros(StepTable.size_for(self.size, _ROW)), average=False, **self.waits
        )
        self._shared, self._table = ranks, StepTable(ranks, _ROW)
        return (*super().connect(parameters), ranks)

    # ---- a step ----------------------------------------------------------------------------------
    def _average(
        self, loss: torch.Tensor | float | None, weight: float, scale: float = 1.0
    ) -> float:
        plan = self._current
        version = self.version
        self._clock.call(self.buckets)
        before = self._squares(scale) if weight == plan.batches[self.rank] > 0 else 0.0
        mean = super()._average(loss, weight, scale)
        counts = weight == plan.batches[self.rank]
        self._clock.end(self.buckets, version, counts=counts)
        self._norms.pop(version - REMEMBERED, None)
        if counts and self._adapts:
            after = self._squares(scale)
            if math.isfinite(before + after):
                self._norms[version] = (before, after)
        return mean

    def _squares(self, scale: float) -> float:
        """Return the squared norm of the gradients, where the total batch is chosen."""
        if not self._adapts:
            return 0.0
        found = [one.grad for one in self.parameters.parameters if one.grad is not None]
        if not found:
            return 0.0
        norms = torch.stack(torch._foreach_norm(found))
        return float(norms.double().square().sum()) / scale**2

    def after_step(self) -> None:
        """Make a new plan when it is due."""
        self._steps += 1
        if self.epoch_steps is not None and self._steps >= self.epoch_steps:
            self.replan()

    def passive_step(self, inner: Optimizer) -> None:
        """Apply the mean of the other ranks' gradients."""
        super().passive_step(inner)
        self.after_step()

    # ---- plans -----------------------------------------------------------------------------------
    def replan(self) -> Plan:
        """Make the plan of the coming steps from what was measured in the last ones; collective.

        Called at the end of an epoch, or by itself after `epoch_steps`. Where a rank has measured
        fewer than two steps (all ranks with their planned batches, and not the first after a plan),
        the plan stays, and what was measured is kept.

        Returns:
            The plan.

        Raises:
            RuntimeError: there is no optimizer yet, or no more; gradients have left in
                ``backward()`` that no step has used.
            PeerError, StallError: a rank does not come.
        """
        planner = self._planning
        self.check_open("replan()")
        self._check_none_left()
        self._shared.hint = "replan() is collective: call it on all ranks after the same step"
        steps = self._table.common(self._clock.steps)
        if len(steps) < _LEAST_STEPS:
            self._keep()
            return self.plan
        plan, rows = self._current, self._share(steps)
        parts = [Parts(*row[:-_NORMS]) for row in rows]
        local, mean = zip(*(row[-_NORMS:] for row in rows), strict=True)
        busy = [batch > 0 for batch in plan.batches]
        seconds = float(np.mean([part.step for part in parts]))
        self.plans[-1] = replace(plan, measured=seconds)
        new = planner.next(
            Measured(
                plan.batches,
                [part.a * has for part, has in zip(parts, busy, strict=True)],
                [part.P * has for part, has in zip(parts, busy, strict=True)],
                [part.gamma for part in parts],
                [part.overlap for part in parts],
                [part.last for part in parts],
                seconds,
                self._noise(plan.batches, local, mean[0]),
            )
        )
        self._take(new)
        if new.predicted is None and new.batches == plan.batches and self._learns:
            self._warn(
                "%d samples cannot be divided among %s in two ways, so that their times cannot be "
                "learned, and the plan stays: raise batch_range",
                plan.total_batch,
                plural(self.size, "rank"),
            )
        return new

    @property
    def _learns(self) -> bool:
        return self.size > 1 and self.baseline in (None, "adaptdl")

    def _keep(self) -> None:
        """Go on with the plan, for which too little was measured; warn if that happens often."""
        self._clock.pause()
        self._steps = 0
        self._kept += 1
        if self._kept == 3:
            self._warn(
                "no new plan: in three epochs fewer than %d steps were measured. A step counts "
                "where all ranks have as many samples as opt.plan says (does the loop call "
                "sampler.set_batches(opt.plan.batches, ...), and set opt.weight?), and is not the "
                "first one after replan()",
                _LEAST_STEPS,
            )

    def _noise(
        self, batches: tuple[int, ...], local: tuple[float, ...], mean: float
    ) -> NoiseScale | None:
        """Return an estimate of the noise scale where it is needed, and defined."""
        undefined = sum(batch > 0 for batch in batches) < 2
        if not self._adapts or undefined or min(*local, mean) < 0:
            return None
        return noise_scale(batches, local, mean)

    def _share(self, steps: list[int]) -> list[list[float]]:
        """Return what each rank has measured in these steps."""
        found = [self._norms[version] for version in steps if version in self._norms]
        norms = np.mean(found, axis=0) if found else np.full(_NORMS, -1.0)
        return self._table.share([*self._clock.typical(steps), *norms])

    def _take(self, plan: Plan) -> None:
        """Train by `plan` from now on."""
        self.plans.append(plan)
        self._clock.restart()
        self._norms.clear()
        self._steps = self._kept = 0
        own = float(plan.batches[self.rank])
        if self.weight == self.default_weight:  # or else the loop has set it
            self.weight = own
        self.default_weight = own
        self._factor = self._gain(plan)

    def _gain(self, plan: Plan) -> float:
        """Return by what learning rates are multiplied."""
        planner = self._planning
        base, total = planner.smallest, plan.total_batch
        if self.scaling == "none" or total == base:
            return 1.0
        if self.scaling == "sqrt":
            return sqrt_scaling(total, base)
        return adascale(total, planner.noise.average.scale, base)

    def stats(self) -> dict[str, int | float]:
        """Return the plan's figures, and how well the one before was predicted.

        "batch" and "total_batch", samples; "predicted_seconds" of a step, NaN while the ranks are
        not known; "measured_seconds" of the latest plan that was measured, and "prediction_error",
        its share by which the prediction was wrong; "noise_scale", samples; "rate_factor", by which
        learning rates are multiplied.
        """
        planner, plan, nan = self._planning, self._current, float("nan")
        old = next((one for one in reversed(self.plans) if one.measured is not None), plan)
        predicted, seconds = old.predicted, old.measured
        return {
            "batch": plan.batches[self.rank],
            "total_batch": plan.total_batch,
            "predicted_seconds": nan if plan.predicted is None else plan.predicted,
            "measured_seconds": seconds or nan,
            "prediction_error": predicted / seconds - 1 if predicted and seconds else nan,
            "noise_scale": planner.noise.average.scale,
            "rate_factor": self._factor,
        }

    # ---- checkpoints, the end --------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Return the plan and what was learned of the ranks."""
        known = {"planner": self._planning.state_dict(), "baseline": self.baseline}
        return {**known, "plan": vars(self._current).copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what was learned of as many ranks, and the plan where it is within the limits."""
        plan = Plan(**state["plan"])
        there, here = (len(plan.batches), state["baseline"]), (self.size, self.baseline)
        if there != here:
            self._warn(
                "the state is of %s and baseline=%r, and this is of %s and %r: times are learned "
                "anew",
                *(plural(there[0], "rank"), there[1], plural(here[0], "rank"), here[1]),
            )
            return
        planner = self._planning
        planner.load_state_dict(state["planner"])
        if not planner.allows(plan.batches):
            self._warn("the plan that was saved, %s, is out of batch_range or max_batch", plan)
            plan = planner.first()
        self._take(plan)

    def after_load(self) -> None:
        """Start anew where ranks have loaded different states."""
        known = repr((self._planning.state_dict(), self._current))
        with self.meet() as meeting:
            all_known = meeting.exchange(lambda: zlib.crc32(known.encode()), last=True)
        if len(set(all_known)) > 1:
            self._warn("the ranks have loaded different states: their times are learned anew")
            limits = self._planning.max_batches
            self._planner = make_planner(self.size, self.batch_range, limits, self.baseline)
            self._take(self._planner.first())

    def fail_step(self) -> None:
        """Make the learning rates what they were."""
        if self._rates is not None:
            self._rates.restore()

    def _warn(self, text: str, *args: object) -> None:
        """Log a warning on rank 0, of what all ranks know."""
        if self.rank == 0:
            RankLogger(__name__, self.rank, self.size).warning(text, *args)

    def release(self) -> None:
        """Let go of the collectives' memory."""
        super().release()
        if self._closed and self._rates is not None:
            self._rates.close()

    def __repr__(self) -> str:
        kind = "" if self.baseline is None else f", baseline={self.baseline!r}"
        return f"Cannikin({plural(self.size, 'rank')}, {self.batch_range!r}{kind})"
