"""The arguments of DropCompute, checked."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from wagma.collectives.option_values import check_switch
from wagma.training.strategies.allreduce import AllreduceSGD
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.diloco import DiLoCo
from wagma.training.strategies.eager import EagerSGD
from wagma.training.strategies.gradients import GradientAveraging
from wagma.training.strategies.kasync import KAsync
from wagma.training.strategies.parameter_server import ParameterServerSGD
from wagma.training.strategies.wagma import WAGMA

Correction = Literal["none", "constant", "stochastic"]
Compensation = Literal["none", "extra_steps", "larger_batch", "resample"]


def period_of(algorithm: Algorithm) -> int | None:
    """Return the number of versions between two averages of all ranks' models.

    None: the algorithm averages gradients, in every version. 0: it never averages all models.
    """
    if isinstance(algorithm, GradientAveraging):
        return None
    return int(getattr(algorithm, "sync_period", 0) or 0)


@dataclass
class Arguments:
    """Arguments of `wagma.DropCompute` beside the algorithm; see there."""

    micro_batches: int | None
    threshold: float | Literal["auto"]
    calibration_steps: int
    correction: Correction
    compensation: Compensation
    preempt: bool
    recalibrate: int | None

    @property
    def need_drop_rate(self) -> bool:
        """Whether the policy needs the expected drop rate."""
        return self.correction == "constant" or self.compensation in ("extra_steps", "larger_batch")

    def check(self, algorithm: Algorithm, model: torch.nn.Module | None) -> None:
        """Check all arguments, and that they suit the algorithm; `model` may be None.

        Raises:
            TypeError, ValueError: an argument is wrong, or the algorithm cannot be used.
        """
        _check_number("micro_batches", self.micro_batches, optional=True)
        _check_number("calibration_steps", self.calibration_steps)
        _check_number("recalibrate", self.recalibrate, optional=True)
        _check_name("correction", self.correction, get_args(Correction))
        _check_name("compensation", self.compensation, get_args(Compensation))
        check_switch("preempt", self.preempt)
        if self.preempt and model is None:
            raise ValueError(
                "preempt=True needs the model, to end its passes: "
                "DistributedOptimizer(optimizer, policy, model=model)"
            )
        automatic = self.threshold == "auto"
        if not automatic:
            self._check_seconds()
        measured = self.calibration_steps * (period_of(algorithm) or 1)
        if self.recalibrate is not None and (not automatic or self.recalibrate <= measured):
            raise ValueError(
                f"recalibrate={self.recalibrate} needs threshold='auto', and has to be more than "
                f"the {measured} versions of a calibration"
            )
        if self.micro_batches is None:
            self._check_unlimited(automatic)
        self._check_algorithm(algorithm)

    def check_stochastic(self, what: str) -> None:
        """Check for ``correction="stochastic"``, which `what` needs.

        Raises:
            ValueError: the correction is another one.
        """
        if self.correction != "stochastic":
            raise ValueError(
                f"{what} needs correction='stochastic', not {self.correction!r}, to divide "
                "averages by what was computed"
            )

    def _check_seconds(self) -> None:
        wrong = f"threshold={self.threshold!r} must be 'auto', or seconds, more than 0"
        if isinstance(self.threshold, (str, bool)):
            raise ValueError(wrong)
        try:
            self.threshold = float(self.threshold)
        except (TypeError, ValueError):
            raise ValueError(wrong) from None
        if not self.threshold > 0:
            raise ValueError(wrong)

    def _check_unlimited(self, automatic: bool) -> None:
        if automatic:
            raise ValueError(
                "micro_batches=None needs a threshold in seconds: 'auto' needs a number of "
                "micro-batches"
            )
        self.check_stochastic("micro_batches=None")
        if self.need_drop_rate:
            raise ValueError(
                f"micro_batches=None drops nothing: compensation={self.compensation!r} must be "
                "'none' or 'resample'"
            )

    def _check_algorithm(self, algorithm: Algorithm) -> None:
        if isinstance(algorithm, ParameterServerSGD):
            raise TypeError(
                f"DropCompute around {algorithm!r}, which leaves slow learners out by itself: pass "
                "DistributedOptimizer the ParameterServerSGD alone"
            )
        period = period_of(algorithm)
        if isinstance(algorithm, KAsync):
            raise TypeError(
                "DropCompute around KAsync, whose ranks compute nothing while a gradient is "
                "pending: use AllreduceSGD, EagerSGD or KSync"
            )
        if isinstance(algorithm, AllreduceSGD) and algorithm.bucket_bytes is not None:
            raise ValueError(
                f"DropCompute around {type(algorithm).__name__} with bucket_bytes="
                f"{algorithm.bucket_bytes}: backward() would have to know that a micro-batch is "
                "the last one to send its gradients; pass bucket_bytes=None"
            )
        if isinstance(algorithm, EagerSGD) and self.correction == "stochastic":
            raise ValueError(
                "correction='stochastic' around EagerSGD, which divides by the number of ranks and "
                "not by what they computed: use 'none' or 'constant', or AllreduceSGD"
            )
        if period is None:
            return
        groups = isinstance(algorithm, DiLoCo) and algorithm.group_size is not None
        if not period or groups:
            raise TypeError(
                f"DropCompute around {algorithm!r}, whose ranks do not all average together: use "
                "AllreduceSGD, LocalSGD, or WAGMA with a sync_period"
            )
        if isinstance(algorithm, WAGMA) and algorithm.missed != "fast-forward":
            raise ValueError(
                "DropCompute around WAGMA needs WAGMA(..., missed='fast-forward'): when a rank "
                "skips the rest of a period, late ranks have to follow"
            )
        if self.preempt:
            raise ValueError(
                f"preempt=True around {type(algorithm).__name__}, where DropCompute skips local "
                "steps: use it with algorithms that average gradients"
            )
        if self.compensation in ("larger_batch", "resample"):
            raise ValueError(
                f"compensation={self.compensation!r} around {type(algorithm).__name__}, which "
                "leaves out local steps: use 'extra_steps'"
            )


def _check_number(name: str, value: object, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={value!r} must be an int" + " or None" * optional) from None
    if number < 1:
        raise ValueError(f"{name}={number} must be 1 or more")


def _check_name(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r} must be {' or '.join(map(repr, known))}")
