"""DropCompute: a rank stops accumulating gradients at a threshold, so that none waits for long."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Literal, TypeVar

import torch
from torch.optim import Optimizer

from wagma.launch.logs import RankLogger
from wagma.training.policies.arguments import Arguments, Compensation, Correction, period_of
from wagma.training.policies.base import ComputePolicy
from wagma.training.policies.calibration import Calibration, Chosen, Gain
from wagma.training.policies.draws import Draws, Laps, source_of
from wagma.training.policies.preemption import Preemption
from wagma.training.policies.slower import Slower
from wagma.training.strategies.base import Algorithm

__all__ = ["DropCompute"]

B = TypeVar("B")
STATE = ("threshold", "expected_speedup", "expected_drop_rate", "micro_batches_per_step")


class DropCompute(ComputePolicy):
    """Stops a step's micro-batches at a threshold, and averages what is finished.

    Of Giladi et al., "DropCompute: simple and more robust distributed synchronous training via
    compute variance reduction" (NeurIPS 2023), Algorithms 1 and 2::

        policy = wagma.DropCompute(wagma.AllreduceSGD(comm), micro_batches=12)
        opt = wagma.DistributedOptimizer(inner, policy)
        while opt.version < opt.steps_to_do(steps):
            opt.zero_grad()
            for x, y in opt.micro_batches(next_micro_batches()):
                loss(model(x), y).backward()  # the mean over the micro-batch, not divided
            opt.step()

    The time since the first micro-batch began is compared with the threshold between
    micro-batches: the one in progress when it passes is finished, and counts. A rank that finishes
    none, as when its data has run out, has weight 0.

    Around LocalSGD and WAGMA (B.3) the time since the last average of all ranks is compared with
    it, between local steps: the rest of the period is left out, and `version` goes on to its end.

    Args:
        algorithm: what averages: AllreduceSGD, EagerSGD, LocalSGD, or WAGMA with
            ``missed="fast-forward"``.
        micro_batches: per step and rank, M, the same on all ranks. None: as many as fit under the
            threshold (Anytime Minibatch, Ferdinand et al. 2018).
        threshold: seconds; "auto": the one with the best expected speed-up (Algorithm 2), from the
            times that all ranks' micro-batches take in the first steps.
        calibration_steps: steps that are measured, I; of LocalSGD and WAGMA periods.
        correction: by what gradients are divided (B.2.2). "none": by M, whatever was finished.
            "constant": by M, and learning rates are multiplied by 1 - the expected drop rate.
            "stochastic": by the micro-batches that all ranks have finished together.
        compensation: of what is dropped (4.5), R = M / E[finished] - 1. "extra_steps": R times more
            steps, see `DistributedOptimizer.steps_to_do`. "larger_batch": M grows by R, and the
            threshold with it. "resample": what was handed in and not drawn comes again in later
            steps, until ``opt.epoch_done``; what waits is not in a checkpoint.
        preempt: the threshold also ends the micro-batch in progress, before a module's forward pass
            or when a parameter's gradient is computed, as if it had never begun. It needs
            ``DistributedOptimizer(..., model=model)``, and the loop's body in a block, ``with
            opt.micro_batch(): ...``. Each micro-batch then accumulates apart and is added: a pass
            over the gradients more, and a copy of the model's buffers.
        recalibrate: versions after which the threshold is chosen again; None: never.

    Attributes:
        threshold: seconds, infinity where nothing is dropped.
        expected_speedup, expected_drop_rate: of the threshold, as it was chosen; nan before.

    Raises:
        TypeError: `algorithm` is none.
        What is wrong with the other arguments, and MismatchError where ranks have different ones,
        is raised, on every rank, when the optimizer is made.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        micro_batches: int | None,
        threshold: float | Literal["auto"] = "auto",
        *,
        calibration_steps: int = 10,
        correction: Correction = "none",
        compensation: Compensation = "none",
        preempt: bool = False,
        recalibrate: int | None = None,
    ) -> None:
        super().__init__(algorithm)
        self._arguments = Arguments(
            micro_batches,
            threshold,
            calibration_steps,
            correction,
            compensation,
            preempt,
            recalibrate,
        )
        self._model: torch.nn.Module | None = None
        self._preemption: Preemption | None = None
        self.micro_batches_per_step = micro_batches
        self.threshold = math.inf
        self.expected_speedup = self.expected_drop_rate = math.nan
        self._log = RankLogger(__name__, algorithm.rank, algorithm.size)
        self._period: int | None = None
        self._parameters: Sequence[torch.Tensor] = ()
        self._calibration: Calibration | None = None
        self._gain = Gain()
        self._draws: Draws | None = None  # of the step that comes
        self._sources: deque[Iterator[Any]] = deque()
        self._laps: Laps | None = None  # of this step, or of this period
        self._called = self._ended = math.nan  # the last averaging; the last step or period
        self._rate = self._owed = 0.0  # R, and the extra steps for what was dropped before
        self._since = 0  # version since which R holds
        self._finished = self._dropped = 0
        self._told = False  # that the threshold is too short

    def agree(self, model: torch.nn.Module | None) -> None:
        """Check the arguments."""
        self._model = model
        given = self._arguments

        def arguments() -> dict[str, object]:
            given.check(self.algorithm, model)
            return {"policy": type(self).__name__, **asdict(given)}

        with self.algorithm.meet() as meeting:
            meeting.agree(arguments, last=True)

    def attach(self, inner: Optimizer) -> None:
        """Begin to measure, or to drop."""
        given = self._arguments
        self._period = period_of(self.algorithm)
        self._parameters = self.algorithm.parameters.parameters
        if given.threshold != "auto":
            self.threshold = float(given.threshold)
        if given.threshold == "auto" or given.need_drop_rate:
            self._calibrate(0)
        if given.preempt and self._model is not None:
            self._preemption = Preemption(self._model, self._parameters)
        if given.correction == "constant":
            Slower(inner, lambda: 1 - self.expected_drop_rate if self.threshold < math.inf else 1.0)

    # ---- a step ----------------------------------------------------------------------------------
    def draw(self, batches: Iterable[B], weight: Callable[[B], float] | None) -> Iterator[B]:
        """Return the micro-batches of `batches` that are computed in this step."""
        if weight is not None:
            self._arguments.check_stochastic("micro_batches(weight=...)")
        source = source_of(batches)
        if self._draws is None:
            limit = self.threshold if self._period is None else math.inf
            self._draws = Draws(
                self.micro_batches_per_step,
                limit,
                self._parameters,
                blocks=self._preemption is not None,
            )
        if self._laps is None:
            self._laps = Laps()
        if self._arguments.compensation != "resample":
            self._sources = deque([source])
        elif all(source is not known for known in self._sources):
            self._sources.append(source)
        return self._draws.draw(self._sources, weight)

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Compute a micro-batch in the block, until the threshold with ``preempt=True``."""
        draws = self._draws
        if draws is None or draws.laps is None:
            raise RuntimeError(
                "micro_batch() outside of a loop over micro-batches: for batch in "
                "opt.micro_batches(batches): with opt.micro_batch(): ..."
            )
        draws.entered = True
        if self._preemption is None or self.threshold == math.inf:
            yield
            return
        with self._preemption.until(draws.laps.ends_after(self.threshold)) as ended:
            yield
        draws.preempted = bool(ended)

    def begin_step(self, parameters: Sequence[torch.Tensor], closure: object) -> None:
        """Divide the gradients by what they are divided by, and weigh them."""
        draws, self._draws = self._draws, None
        if closure is not None or draws is None:
            call = "step(closure)" if draws else "step() without micro_batches()"
            raise RuntimeError(
                f"{call} with DropCompute: compute the gradients in a loop, for batch in "
                "opt.micro_batches(batches): ..., and call step()"
            )
        draws.close()
        self._parameters = parameters
        if draws.weight == 0:
            self.algorithm.weight = 0.0
        elif self._arguments.correction == "stochastic":
            self.algorithm.weight = draws.weight
            _divide(parameters, draws.weight)
        else:
            assert self.micro_batches_per_step is not None
            _divide(parameters, self.micro_batches_per_step)
        if self._period is None:
            self._laps = draws.laps
            self._finished += draws.finished
            self._dropped += draws.left_out
        elif self._laps is not None:
            self._laps.lap()
            self._finished += 1
        self._called = time.perf_counter()

    def end_step(self, inner: Optimizer) -> None:
        """Leave out the rest of a period that takes too long; choose a threshold when due."""
        algorithm, period = self.algorithm, self._period or 1
        if self._laps is not None and self._laps.seconds >= self.threshold:
            while algorithm.version % period:
                algorithm.weight = float(self._arguments.correction != "stochastic")
                algorithm.passive_step(inner)
                self._dropped += 1
        if algorithm.version % period == 0:
            self._see(algorithm.version // period - 1, time.perf_counter())
            self._choose(algorithm.version // period)

    def _see(self, step: int, now: float) -> None:
        """Note what a step took, or a period."""
        laps, self._laps = self._laps, None
        seconds, self._ended = now - self._ended, now
        if laps is None or not laps.times:
            return
        units = self._period or self.micro_batches_per_step
        if units and seconds == seconds:
            self._gain.add(seconds, len(laps.times) / units, dropping=self.threshold < math.inf)
        if self._calibration is not None:
            self._calibration.add(step, laps.times, now - self._called)
        if min(laps.times) >= self.threshold and not self._told:
            self._told = True
            self._log.warning(
                "the threshold of %g s is below the fastest %s, %g s: all but the first is dropped",
                self.threshold,
                "local step" if self._period else "micro-batch",
                min(laps.times),
            )

    # ---- the threshold ---------------------------------------------------------------------------
    def _calibrate(self, first: int) -> None:
        """Measure from a step on, or a period."""
        if self.algorithm.size == 1:
            self._log.info("one rank waits for nobody: nothing is dropped")
            return
        given = self._arguments
        units = self._period or given.micro_batches
        assert units is not None
        self._calibration = Calibration(given.calibration_steps, units, first)
        self._owed += self._rate * (first * (self._period or 1) - self._since)
        self._rate, self.threshold = 0.0, math.inf
        self.micro_batches_per_step = given.micro_batches

    def _choose(self, step: int) -> None:
        """Choose the threshold after the last step of a calibration; collective then."""
        given, calibration = self._arguments, self._calibration
        if calibration is None:
            since = self._since // (self._period or 1)
            if given.recalibrate is not None and step >= since + given.recalibrate:
                self._calibrate(since + given.recalibrate)
            return
        if step < calibration.last:
            return
        candidates = None if given.threshold == "auto" else (given.threshold,)
        chosen = calibration.choose(self.algorithm, candidates, preempt=given.preempt)
        if chosen is None:
            if self.algorithm.rank == 0:
                self._log.warning(
                    "no threshold can be chosen: in none of %d steps had all ranks %d "
                    "micro-batches; measuring again",
                    *(given.calibration_steps, given.micro_batches or 0),
                )
            self._calibrate(calibration.last)
            return
        self._calibration = None
        self._since = calibration.last * (self._period or 1)
        self._adopt(chosen)

    def _adopt(self, chosen: Chosen) -> None:
        self.threshold, self.expected_speedup, self.expected_drop_rate = chosen
        said = "expected speed-up %.3f, drop rate %.1f %%, from %d steps of %d ranks"
        values = (
            *(chosen.speedup, 100 * chosen.drop_rate),
            *(self._arguments.calibration_steps, self.algorithm.size),
        )
        if self.algorithm.rank == 0 and self.threshold < math.inf:
            self._log.info(f"DropCompute: threshold %.4g s, {said}", self.threshold, *values)
        elif self.algorithm.rank == 0:
            self._log.info(f"DropCompute stays off, no threshold gains: best {said}", *values)
        if self.threshold == math.inf:
            return
        most = self.micro_batches_per_step or 1
        # One micro-batch is always finished.
        kept = max(1 - chosen.drop_rate, 1 / (self._period or most))
        self._rate = 1 / kept - 1
        if self._arguments.compensation == "larger_batch":
            self.micro_batches_per_step = math.ceil(most * (1 + self._rate) - 1e-9)
            self.threshold *= self.micro_batches_per_step / most

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training ends that without drops has `steps` steps."""
        if self._arguments.compensation != "extra_steps":
            return steps
        extra = self._owed + self._rate * max(0, steps - self._since)
        return steps + math.ceil(extra - 1e-9)

    def close(self) -> None:
        """Remove the hooks that end micro-batches."""
        if self._preemption is not None:
            self._preemption.close()

    # ---- what became of it -----------------------------------------------------------------------
    def stats(self) -> dict[str, int | float]:
        """Return drop rate, threshold, expected and measured speed-up, and seconds saved."""
        return {
            "threshold": self.threshold,
            "drop_rate": self._dropped / (self._finished + self._dropped or 1),
            "expected_drop_rate": self.expected_drop_rate,
            "expected_speedup": self.expected_speedup,
            "measured_speedup": self._gain.speedup(),
            "saved_seconds": self._gain.saved_seconds(),
        }

    def state(self) -> dict[str, Any]:
        """Return the threshold and the calibration, as far as it has come."""
        calibration = self._calibration
        return {
            **{name: getattr(self, name) for name in STATE},
            "extra": [self._rate, self._owed, self._since],
            "calibration": None if calibration is None else calibration.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        for name in STATE:
            setattr(self, name, state[name])
        self._rate, self._owed, self._since = state["extra"]
        saved = state["calibration"]
        self._calibration = None if saved is None else Calibration.of(saved)
        self._laps = self._draws = None

    def __repr__(self) -> str:
        given = self._arguments
        return (
            f"DropCompute({self.algorithm!r}, micro_batches={given.micro_batches}, "
            f"threshold={given.threshold!r})"
        )


def _divide(parameters: Sequence[torch.Tensor], by: float) -> None:
    """Divide the gradients; what a loop has kept of them does not change."""
    having = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in having if parameter.grad is not None]
    if not having:
        return
    with torch.no_grad():
        quotients = torch._foreach_mul(gradients, 1 / by)
    for parameter, quotient in zip(having, quotients, strict=True):
        parameter.grad = quotient
