"""The current threshold: measured, chosen alike on all ranks, and chosen again."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wagma.launch.logs import RankLogger
from wagma.training.policies.arguments import Arguments
from wagma.training.policies.calibration import Calibration, ThresholdChoice
from wagma.training.strategies.base import Algorithm

SAVED = ("seconds", "expected_speedup", "expected_drop_rate", "most", "_rate", "_owed", "_since")


class Threshold:
    """Time that a step or a period may compute.

    Args:
        given: the checked arguments.
        algorithm: the attached algorithm, whose ranks choose together.
        period: versions of a period whose local steps may be skipped; None: micro-batches are.
        log: logger of this rank.

    Attributes:
        seconds: the threshold; infinity: nothing is dropped.
        expected_speedup, expected_drop_rate: expectations when it was chosen; NaN before.
        most: largest number of micro-batches per step; None: no limit.
    """

    def __init__(
        self, given: Arguments, algorithm: Algorithm, period: int | None, log: RankLogger
    ) -> None:
        self.seconds = math.inf if given.threshold == "auto" else float(given.threshold)
        self.expected_speedup = self.expected_drop_rate = math.nan
        self.most = given.micro_batches
        self._given = given
        self._algorithm = algorithm
        self._period = period
        self._log = log
        self._calibration: Calibration | None = None
        self._rate = 0.0  # R = M / E[finished] - 1
        self._owed = 0.0  # extra steps for what was dropped under earlier R
        self._since = 0  # first step or period under this R
        if given.threshold == "auto" and algorithm.size == 1:
            log.info("a single rank has nothing to wait for: nothing is dropped")
        elif given.threshold == "auto" or given.need_drop_rate:
            self._measure(0)

    @property
    def kept(self) -> float:
        """Expected share of micro-batches that are not dropped; 1 before it is known."""
        known = self.seconds < math.inf and not math.isnan(self.expected_drop_rate)
        return 1 - self.expected_drop_rate if known else 1.0

    def _measure(self, first: int) -> None:
        """Measure from step or period `first` on, and drop nothing meanwhile."""
        units = self._period or self._given.micro_batches
        assert units is not None
        self._calibration = Calibration(self._given.calibration_steps, units, first)
        self._owed += self._rate * (first - self._since)
        self._rate, self.seconds = 0.0, math.inf
        self.most = self._given.micro_batches

    def note(self, step: int, times: Sequence[float], averaging: float) -> None:
        """Record the seconds of a step's micro-batches, or of a period's local steps."""
        if self._calibration is not None:
            self._calibration.add(step, times, averaging)

    def choose(self, step: int) -> None:
        """Choose the threshold, collectively, if `step` is the first after a calibration."""
        given, calibration = self._given, self._calibration
        if calibration is None:
            again = given.recalibrate
            if again is not None and self._algorithm.size > 1:
                first = self._since + math.ceil(again / (self._period or 1))
                if step >= first:
                    self._measure(first)
            return
        if step < calibration.last:
            return
        candidates = None if given.threshold == "auto" else (given.threshold,)
        choice = calibration.choose(self._algorithm, candidates, step, preempt=given.preempt)
        if isinstance(choice, ThresholdChoice):
            self._calibration = None
            self._since = calibration.last
            self._adopt(choice)
            return
        if self._algorithm.rank == 0:
            self._log.warning(
                "no threshold can be chosen: in none of %d steps did all ranks compute all of "
                "their %s; measuring again",
                given.calibration_steps,
                "local steps" if self._period else f"{given.micro_batches} micro-batches",
            )
        self._measure(choice)

    def _adopt(self, choice: ThresholdChoice) -> None:
        self.seconds, self.expected_speedup, self.expected_drop_rate = choice
        off = self.seconds == math.inf
        if self._algorithm.rank == 0:
            what = "stays off, no threshold is faster" if off else f"threshold {self.seconds:.4g} s"
            self._log.info(
                "DropCompute: %s; expected speed-up %.3f, drop rate %.1f %%, from %d steps of %d "
                "ranks",
                *(what, choice.speedup, 100 * choice.drop_rate),
                *(self._given.calibration_steps, self._algorithm.size),
            )
        if off:
            return
        units = self._period or self.most or 1
        self._rate = 1 / max(1 - choice.drop_rate, 1 / units) - 1  # one is nearly always finished
        if self._given.compensation == "larger_batch" and self.most is not None:
            before, self.most = self.most, math.ceil(self.most * (1 + self._rate) - 1e-9)
            self.seconds *= self.most / before

    def steps_to_do(self, steps: int) -> int:
        """Return the version at which a training of `steps` full steps ends."""
        period = self._period or 1
        if self._given.compensation == "extra_steps":
            extra = self._owed + self._rate * max(0.0, steps / period - self._since)
            steps += math.ceil(extra * period - 1e-9)
        return -(-steps // period) * period

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        calibration = self._calibration
        return {
            "arguments": asdict(self._given),
            "values": {name: getattr(self, name) for name in SAVED},
            "calibration": None if calibration is None else calibration.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned, unless the arguments differ."""
        if state["arguments"] != asdict(self._given):
            if self._algorithm.rank == 0:
                self._log.warning(
                    "the checkpoint has other arguments of DropCompute, %s: its threshold is "
                    "ignored",
                    ", ".join(
                        f"{name}={value!r}"
                        for name, value in state["arguments"].items()
                        if value != getattr(self._given, name)
                    ),
                )
            return
        for name, value in state["values"].items():
            setattr(self, name, value)
        saved = state["calibration"]
        self._calibration = None if saved is None else Calibration.of(saved)
