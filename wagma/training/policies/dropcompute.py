"""DropCompute: ranks stop accumulating gradients at a threshold, to bound waiting."""

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
from wagma.training.clock import Clock, Moment, device_of
from wagma.training.policies.arguments import Arguments, Compensation, Correction, period_of
from wagma.training.policies.base import ComputePolicy
from wagma.training.policies.calibration import Gain
from wagma.training.policies.draws import Draws, Laps, source_of
from wagma.training.policies.preemption import Preemption
from wagma.training.policies.threshold import Threshold
from wagma.training.rates import ScaledRates
from wagma.training.strategies.base import Algorithm

B = TypeVar("B")
# Weight of a rank that has finished no micro-batch but has data left. It is too small to change a
# sum of weights, while a sum of 0 means that all ranks ran out of data. Float32 arrays refuse
# weights below 1e-30.
MORE = 2.0**-99


class DropCompute(ComputePolicy):
    """Stop a step's micro-batches at a threshold, and average what is finished.

    From Giladi et al., "DropCompute: simple and more robust distributed synchronous training via
    compute variance reduction" (NeurIPS 2023), Algorithms 1 and 2::

        policy = wagma.DropCompute(wagma.AllreduceSGD(comm), micro_batches=12)
        opt = wagma.DistributedOptimizer(inner, policy)
        while opt.version < opt.steps_to_do(steps):
            opt.zero_grad()
            for x, y in opt.micro_batches(next_micro_batches()):
                loss(model(x), y).backward()  # mean over the micro-batch, undivided
            opt.step()

    Between micro-batches the policy compares the time since the first one began with the threshold:
    the micro-batch in progress when the threshold passes is finished, and counts. A rank whose data
    ran out has weight 0; a rank without a finished micro-batch for another reason has a negligible
    weight above 0.

    With LocalSGD and WAGMA (B.3) the policy compares the time since the last average of all ranks
    between local steps: it skips the rest of the period, and `version` advances to its end. A
    training then ends with a period; `DistributedOptimizer.steps_to_do` returns that version.

    Args:
        algorithm: the algorithm that averages: AllreduceSGD, EagerSGD, LocalSGD, DiLoCo without
            groups, or WAGMA with ``missed="fast-forward"``.
        micro_batches: micro-batches per step and rank, M, the same on all ranks. None: as many as
            fit under the threshold (Anytime Minibatch, Ferdinand et al. 2018).
        threshold: seconds; "auto": the threshold with the best expected speed-up (Algorithm 2),
            from the times of all ranks' micro-batches in the first steps.
        calibration_steps: number of measured steps, I; periods with LocalSGD and WAGMA.
        correction: divisor of the gradients (B.2.2). "none": M, whatever was finished. "constant":
            M, with learning rates multiplied by 1 - the expected drop rate. "stochastic": the
            micro-batches that all ranks finished together.
        compensation: compensation for dropped micro-batches (4.5), R = M / E[finished] - 1.
            "extra_steps": R times more steps, see `DistributedOptimizer.steps_to_do`.
            "larger_batch": M and the threshold grow by R. "resample": micro-batches that were
            passed in but not drawn come again in later steps, until ``opt.epoch_done``; checkpoints
            do not save them.
        preempt: the threshold also ends the micro-batch in progress, before a module's forward pass
            or when a parameter's gradient is computed, without a trace of it. This needs
            ``DistributedOptimizer(..., model=model)``, and the loop's body in a block, ``with
            opt.micro_batch(): ...``. It costs one more pass over the gradients per micro-batch, and
            a copy of the model's buffers.
        recalibrate: versions after which the threshold is measured and chosen again; None: never.

    Raises:
        TypeError: `algorithm` is no algorithm.
        Creating the optimizer raises errors in the other arguments, and MismatchError if they
        differ between ranks; on every rank.
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
        self._log = RankLogger(__name__, algorithm.rank, algorithm.size)
        self._threshold: Threshold | None = None
        self._model: torch.nn.Module | None = None
        self._preemption: Preemption | None = None
        self._rates: ScaledRates | None = None
        self._period: int | None = None
        self._parameters: Sequence[torch.Tensor] = ()
        self._gain = Gain()
        self._draws: Draws | None = None  # of the next step
        self._sources: deque[Iterator[Any]] = deque()
        self._laps: Laps | None = None  # of this step or period
        self._lapped = 0  # the period of the laps
        self._clock = Clock(None)
        self._called: Moment | None = None  # last start of averaging
        self._ended = math.nan  # last end of a step
        self._finished = self._dropped = 0
        self._fastest = math.inf  # seconds of the fastest micro-batch or local step
        self._warned = False  # that the threshold is too short

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
        """Start to measure or to drop."""
        self._period = period_of(self.algorithm)
        threshold = Threshold(self._arguments, self.algorithm, self._period, self._log)
        self._threshold = threshold
        self.reattach(self.algorithm.parameters.parameters)
        if self._arguments.correction == "constant":
            self._rates = ScaledRates(inner, lambda: threshold.kept)

    def reattach(self, parameters: Sequence[torch.Tensor]) -> None:
        """Draw, divide and preempt micro-batches for these parameters."""
        self._parameters = parameters
        self._clock = Clock(device_of(parameters))
        if self._preemption is not None:
            self._preemption.close()
        if self._arguments.preempt and self._model is not None:
            self._preemption = Preemption(self._model, parameters, self._clock)

    @property
    def _in_force(self) -> Threshold:
        if self._threshold is None:
            raise RuntimeError(f"{self!r} serves no optimizer yet: give it to DistributedOptimizer")
        return self._threshold

    @property
    def threshold(self) -> float:
        """Seconds; infinity where nothing is dropped."""
        return self._in_force.seconds

    @property
    def micro_batches_per_step(self) -> int | None:
        """Largest number of micro-batches in a step; None: no limit."""
        return self._in_force.most

    # ---- a step ----------------------------------------------------------------------------------
    def draw(self, batches: Iterable[B], weight: Callable[[B], float] | None) -> Iterator[B]:
        """Return the micro-batches of `batches` to compute in this step."""
        if weight is not None:
            self._arguments.check_stochastic("micro_batches(weight=...)")
        source = source_of(batches)
        if self._draws is None:
            limit = self.threshold if self._period is None else math.inf
            blocks = self._preemption is not None
            self._draws = Draws(
                *(self.micro_batches_per_step, limit, self._parameters, self._clock), blocks=blocks
            )
        if self._period is not None:
            period = self.algorithm.version // self._period
            if self._laps is None or self._lapped != period:
                self._laps, self._lapped = Laps(self._clock), period
        if self._arguments.compensation != "resample":
            self._sources = deque([source])
        elif all(source is not known for known in self._sources):
            self._sources.append(source)
        return self._draws.draw(self._sources, weight)

    @contextmanager
    def micro_batch(self) -> Iterator[None]:
        """Compute a micro-batch in the block; with ``preempt=True`` until the threshold."""
        draws = self._draws
        if draws is None or draws.laps is None:
            raise RuntimeError(
                "micro_batch() outside a loop over micro-batches: for batch in "
                "opt.micro_batches(batches): with opt.micro_batch(): ..."
            )
        draws.entered = True
        if self._preemption is None:
            yield
            return
        draws.unfinished = True
        began, threshold = draws.laps.began, self.threshold
        with self._preemption.until(lambda: began.age >= threshold) as ended:
            yield
        draws.unfinished = draws.preempted = bool(ended)

    def begin_step(self, parameters: Sequence[torch.Tensor], closure: object) -> None:
        """Divide the gradients, and set the weight for their average."""
        draws, self._draws = self._draws, None
        if closure is not None or draws is None:
            call = "step(closure)" if draws else "step() without micro_batches()"
            raise RuntimeError(
                f"{call} with DropCompute: compute the gradients in a loop, for batch in "
                "opt.micro_batches(batches): ..., and call step()"
            )
        draws.close()
        self._weigh(draws, parameters)
        if self._period is None:
            self._laps = draws.laps
            self._finished += draws.finished
            self._dropped += draws.left_out
        elif self._laps is not None:
            self._laps.lap()
            self._finished += 1
        if draws.preempted and draws.finished == 0:
            self._warn("no micro-batch is finished")
        self._called = self._clock.mark()

    def _weigh(self, draws: Draws, parameters: Sequence[torch.Tensor]) -> None:
        if draws.weight == 0:
            for parameter in parameters:
                parameter.grad = None
            self.algorithm.weight = MORE if self._sources and self._period is None else 0.0
        elif self._arguments.correction == "stochastic":
            self.algorithm.weight = draws.weight
            _divide(parameters, draws.weight)
        else:
            assert self.micro_batches_per_step is not None
            _divide(parameters, self.micro_batches_per_step)

    def end_step(self, inner: Optimizer, last: int | None) -> None:
        """Skip the rest of a period that takes too long; choose a threshold when due."""
        algorithm, period = self.algorithm, self._period or 1
        if self._laps is not None and self._laps.elapsed() >= self.threshold:
            while algorithm.version % period and (last is None or algorithm.version < last):
                algorithm.weight = float(self._arguments.correction != "stochastic")
                algorithm.passive_step(inner)
                self._dropped += 1
        if algorithm.version % period == 0:
            self._record(algorithm.version // period - 1, time.perf_counter())
            self._in_force.choose(algorithm.version // period)

    def fail_step(self) -> None:
        """Restore the learning rates."""
        super().fail_step()
        if self._rates is not None:
            self._rates.restore()

    def _record(self, step: int, now: float) -> None:
        """Record the times of a step or a period."""
        laps, self._laps = self._laps, None
        seconds, self._ended = now - self._ended, now
        times = [] if laps is None else laps.times
        if not times or self._called is None:
            return
        units = self._period or self._arguments.micro_batches
        if units and not math.isnan(seconds):
            self._gain.add(seconds, len(times) / units, dropping=self.threshold < math.inf)
        self._in_force.note(step, times, now - self._called.seconds)
        self._fastest = min(self._fastest, *times)
        if self._fastest >= self.threshold:
            self._warn("only the first is finished")

    def _warn(self, what: str) -> None:
        """Warn once that the threshold is too short."""
        if not self._warned:
            self._warned = True
            self._log.warning(
                "the threshold of %g s is below the fastest %s%s: in a step %s. Choose a longer "
                "threshold, or 'auto'",
                self.threshold,
                "local step" if self._period else "micro-batch",
                f", {self._fastest:g} s" if self._fastest < math.inf else "",
                what,
            )

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training of `steps` full steps ends."""
        return self._in_force.steps_to_do(steps)

    def close(self) -> None:
        """Remove the hooks of model and optimizer."""
        for hooks in (self._preemption, self._rates):
            if hooks is not None:
                hooks.close()

    # ---- counters, checkpoints -------------------------------------------------------------------
    def stats(self) -> dict[str, int | float]:
        """Return drop rate, threshold, expected and measured speed-up, and seconds saved."""
        threshold = self._in_force
        return {
            "threshold": threshold.seconds,
            "drop_rate": self._dropped / (self._finished + self._dropped or 1),
            "expected_drop_rate": threshold.expected_drop_rate,
            "expected_speedup": threshold.expected_speedup,
            "measured_speedup": self._gain.speedup(),
            "saved_seconds": self._gain.saved_seconds(),
        }

    def state(self) -> dict[str, Any]:
        """Return the threshold and the measurements so far."""
        return self._in_force.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned, if the arguments are the same."""
        self._in_force.load(state)
        self._laps = self._draws = None
        self._sources.clear()

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in asdict(self._arguments).items())
        return f"DropCompute({self.algorithm!r}, {given})"


def _divide(parameters: Sequence[torch.Tensor], by: float) -> None:
    """Replace the gradients by quotients; references to the old ones keep their values."""
    having = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in having if parameter.grad is not None]
    if not having:
        return
    with torch.no_grad():
        quotients = torch._foreach_mul(gradients, 1 / by)
    for parameter, quotient in zip(having, quotients, strict=True):
        parameter.grad = quotient
