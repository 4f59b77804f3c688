"""Cannikin: uneven batches, so that ranks of different speed finish a step together."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, get_args

import torch
from torch.optim import Optimizer

from wagma.inject.checks import check_count
from wagma.launch.logs import RankLogger
from wagma.theory.cannikin import Plan, Planner, make_planner
from wagma.theory.cannikin.noise import estimate_or_none
from wagma.theory.cannikin.planners import Baseline, check_range
from wagma.theory.cannikin.total_batch import Scaling, rate_factor
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.rates import ScaledRates
from wagma.training.strategies.allreduce import AllreduceSGD
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.measurements import (
    NORMS,
    REMEMBERED,
    Parts,
    StepClock,
    StepNorms,
    measured_by,
    squared_norm,
)
from wagma.training.strategies.table import Table
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

_MIN_STEPS = 2  # measured steps that a new plan needs
_ROW = len(Parts._fields) + NORMS  # numbers of a rank in the shared table


class Cannikin(AllreduceSGD):
    """`AllreduceSGD` that divides the total batch so that all ranks finish together.

    Cannikin of Nie et al. (2024) learns each rank's times during training, and computes the fastest
    batches from them. Each rank's gradient is weighted by its samples, so that the average is the
    gradient of the whole batch. The first epoch divides the batch evenly, the second by the time
    per sample, (8), later ones by the learned model. A rank that becomes slower gets smaller
    batches from the next epoch on.

    Pass the batches of ``opt.plan`` to the sampler of the training loop::

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

    Set ``opt.weight`` in every step, before ``backward()``: the last step of an epoch has fewer
    samples, and a loader that prefetches has batches of an older plan. The default is the planned
    batch.

    With a range as `batch_range` Cannikin also chooses the total batch: the one with the largest
    goodput, which is throughput times the progress per sample. The progress follows from the
    gradient noise scale, measured during training. Set learning rates for the smallest batch;
    `scaling` multiplies them during the inner optimizer's step, and schedulers see the originals.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        batch_range: samples of all ranks in a step; or (smallest, largest).
        epoch_steps: steps from one plan to the next; None: only `replan` makes plans.
        scaling: how learning rates follow the total batch, see `wagma.theory.cannikin`: "adascale"
            for SGD, "sqrt" for Adam and its variants, "none": not at all.
        baseline: planner to compare with: "even", "lb-bsp" or "adaptdl", see
            `wagma.theory.cannikin.make_planner`. None: Cannikin.
        max_batch: samples that fit into this rank's memory, which may differ between ranks. None:
            no limit.
        bucket_bytes: see `AllreduceSGD`.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Attributes:
        plans: all plans so far, the latest last; a plan has `measured` once the next one exists.

    Raises:
        what `AllreduceSGD` does; creating the optimizer raises TypeError or ValueError if an
        argument is wrong, MismatchError if the ranks' arguments differ.
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
        self._norms = StepNorms()
        self._adapts = False  # whether Cannikin chooses the total batch
        self._steps = 0  # since the latest plan
        self._kept = 0  # how many times in a row too little was measured for a new plan
        self._factor = 1.0

    @property
    def plan(self) -> Plan:
        """Division of the batch in the next steps.

        Raises:
            RuntimeError: the algorithm serves no optimizer yet.
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
            _ = self.plan  # raises the error
        assert self._planner is not None
        return self._planner

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
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
        """Create the collectives, and scale the learning rates of `inner` if the batch varies."""
        super().attach(parameters, inner)
        if self._adapts and self.scaling != "none":
            self._rates = ScaledRates(inner, lambda: self._factor)
        if self._adapts and self.scaling == "adascale" and "betas" in inner.defaults:
            self._warn(
                "scaling='adascale' is for SGD, and %s normalizes its gradients: pass "
                "scaling='sqrt'",
                type(inner).__name__,
            )

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collectives, and the first plan."""
        if self._planner is None:
            with self.meet() as meeting:
                limits = meeting.exchange(lambda: self.max_batch, last=True)
            self._planner = make_planner(self.size, self.batch_range, limits, self.baseline)
            self._adopt(self._planner.first())
        self._table = Table(self.comm, self.rank, self.size, _ROW, REMEMBERED, **self.waits)
        return (*super().connect(parameters), self._table)

    # ---- a step ----------------------------------------------------------------------------------
    def _average(
        self, loss: torch.Tensor | float | None, weight: float, scale: float = 1.0
    ) -> float:
        plan = self._current
        version = self.version
        counts, tensors = weight == plan.batches[self.rank], self.parameters.parameters
        measures = counts and self._adapts
        self._clock.call(self.buckets)
        own = squared_norm(tensors, scale, counts=measures and weight > 0)
        mean = super()._average(loss, weight, scale)
        self._clock.end(self.buckets, version, counts=counts)
        if measures:
            self._norms.add(version, own, squared_norm(tensors, scale))
        return mean

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
        """Plan the next steps from the measurements of the last ones; collective.

        Call it at the end of an epoch; with `epoch_steps` it runs by itself. A step is measured if
        all ranks have their planned batches and it is not the first one of a plan. With fewer than
        two measured steps on a rank the plan stays, and its measurements are kept.

        Returns:
            The plan.

        Raises:
            RuntimeError: the algorithm serves no optimizer yet, or was closed; ``backward()`` sent
                gradients that no step has used.
            PeerError, StallError: a rank does not arrive.
        """
        planner = self._planning
        self.check_open("replan()")
        self._check_none_left()
        self._table.hint = "replan() is collective: call it on all ranks after the same step"
        steps = self._table.common(self._clock.steps)
        if len(steps) < _MIN_STEPS:
            self._keep()
            return self.plan
        plan, rows = self._current, self._share(steps)
        own, mean = zip(*(row[-NORMS:] for row in rows), strict=True)
        noise = estimate_or_none(plan.batches, own, mean[0]) if self._adapts else None
        measured = measured_by(plan.batches, [Parts(*row[:-NORMS]) for row in rows], noise)
        self.plans[-1] = replace(plan, measured=measured.step)
        new = planner.next(measured)
        self._adopt(new)
        if new.predicted is None and new.batches == plan.batches and planner.learns:
            self._warn(
                "%d samples cannot be divided among %s in two ways, so their times cannot be "
                "learned, and the plan stays: raise batch_range",
                plan.total_batch,
                plural(self.size, "rank"),
            )
        return new

    def _keep(self) -> None:
        """Keep the plan, because too little was measured; warn the third time in a row."""
        self._clock.pause()
        self._steps = 0
        self._kept += 1
        if self._kept == 3:
            self._warn(
                "no new plan: in three epochs fewer than %d steps were measured. A step counts "
                "where all ranks have as many samples as opt.plan says (does the loop call "
                "sampler.set_batches(opt.plan.batches, ...), and set opt.weight?), and is not the "
                "first one after replan()",
                _MIN_STEPS,
            )

    def _share(self, steps: list[int]) -> list[list[float]]:
        """Return each rank's measurements of these steps; collective."""
        own = [*self._clock.typical(steps), *self._norms.mean(steps)]
        rows: list[list[float]] = self._table.share(own).tolist()
        return rows

    def _adopt(self, plan: Plan) -> None:
        """Train with `plan` from now on."""
        self.plans.append(plan)
        self._clock.restart()
        self._norms.clear()
        self._steps = self._kept = 0
        own = float(plan.batches[self.rank])
        if self.weight == self.default_weight:  # otherwise the loop has set it
            self.weight = own
        self.default_weight = own
        planner = self._planning
        noise = planner.noise.average.scale
        self._factor = rate_factor(self.scaling, plan.total_batch, noise, planner.smallest)

    def stats(self) -> dict[str, int | float]:
        """Return figures of the plan, and the error of the latest measured prediction.

        "batch" and "total_batch" in samples; "predicted_seconds" of a step, NaN until the model of
        the ranks is known; "measured_seconds" of the latest measured plan, and its
        "prediction_error", relative; "noise_scale" in samples; "rate_factor", the factor of the
        learning rates.
        """
        planner, plan, nan = self._planning, self._current, float("nan")
        old = next((one for one in reversed(self.plans) if one.measured is not None), plan)
        return {
            "batch": plan.batches[self.rank],
            "total_batch": plan.total_batch,
            "predicted_seconds": nan if plan.predicted is None else plan.predicted,
            "measured_seconds": old.measured or nan,
            "prediction_error": old.prediction_error,
            "noise_scale": planner.noise.average.scale,
            "rate_factor": self._factor,
        }

    # ---- checkpoints, the end --------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Return the plan and the planner's state."""
        known = {"planner": self._planning.state_dict(), "baseline": self.baseline}
        return {**known, "plan": vars(self._current).copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state of as many ranks; a plan outside the limits is replaced."""
        plan = Plan(**state["plan"])
        there, here = (len(plan.batches), state["baseline"]), (self.size, self.baseline)
        if there != here:
            self._warn(
                "the state is of %s and baseline=%r, this training of %s and %r: times are learned "
                "anew",
                *(plural(there[0], "rank"), there[1], plural(here[0], "rank"), here[1]),
            )
            return
        planner = self._planning
        planner.load_state_dict(state["planner"])
        if not planner.allows(plan.batches):
            self._warn("the saved plan, %s, is outside batch_range or max_batch", plan)
            plan = planner.first()
        self._adopt(plan)

    def after_load(self) -> None:
        """Learn anew if the ranks have loaded different states."""
        state = repr((self._planning.state_dict(), self._current))
        with self.meet() as meeting:
            checksums = meeting.exchange(lambda: zlib.crc32(state.encode()), last=True)
        if len(set(checksums)) > 1:
            self._warn("the ranks have loaded different states: their times are learned anew")
            limits = self._planning.max_batches
            self._planner = make_planner(self.size, self.batch_range, limits, self.baseline)
            self._adopt(self._planner.first())

    def fail_step(self) -> None:
        """Restore the learning rates."""
        if self._rates is not None:
            self._rates.restore()

    def _warn(self, text: str, *args: object) -> None:
        """Log a warning on rank 0, about something that all ranks know."""
        if self.rank == 0:
            RankLogger(__name__, self.rank, self.size).warning(text, *args)

    def release(self) -> None:
        """Release the collectives' memory."""
        super().release()
        if self._closed and self._rates is not None:
            self._rates.close()

    def __repr__(self) -> str:
        kind = "" if self.baseline is None else f", baseline={self.baseline!r}"
        return f"Cannikin({plural(self.size, 'rank')}, {self.batch_range!r}{kind})"
