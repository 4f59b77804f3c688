"""Algorithms that stop computing a step at a threshold: DropCompute and Anytime Minibatch."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from wagma.simulate.methods import STOPPING

from .settings import Settings

if TYPE_CHECKING:
    import wagma
    from wagma.algorithms import Algorithm
    from wagma.inject import Delays

# What ends a step, or a period of local steps: M micro-batches or the threshold, whichever comes
# first; the same, also in the midst of a micro-batch; the threshold alone.
Stop = Literal["first", "preempt", "threshold"]

FIGURES = (
    *("threshold", "drop_rate", "expected_drop_rate", "expected_speedup", "measured_speedup"),
    "saved_seconds",
)


def stop_of(name: str) -> Stop | None:
    """Return what ends a step of the algorithm of that name; None: its micro-batches alone."""
    if name == "anytime":
        return "threshold"
    if name == "dropcompute-preempt":
        return "preempt"
    return "first" if re.fullmatch("dropcompute(-local[0-9]+)?", name) else None


def check(settings: Settings) -> None:
    """Check that steps can be split into micro-batches, and stopped where they have to be.

    Raises:
        ValueError: an option has to change.
    """
    count, threshold = settings.micro_batches, settings.threshold
    if settings.batch % count:
        raise ValueError(
            f"--micro-batches {count}: {settings.batch} samples cannot be split into so many equal "
            f"parts; give --batch {max(1, round(settings.batch / count)) * count}"
        )
    stopped = [name for name in settings.algorithms if stop_of(name)]
    if threshold is not None and not stopped:
        raise ValueError(
            f"--threshold {threshold:g}: none of --algorithms {','.join(settings.algorithms)} "
            f"stops at one; add {' or '.join(STOPPING)}, or leave it out"
        )
    for name in stopped:
        period = int(name.rpartition("local")[2]) if "local" in name else None
        if count == 1 and period is None:
            raise ValueError(
                f"--micro-batches 1: {name} stops between the micro-batches of a step; give 2 or "
                "more"
            )
        if period == 1:
            raise ValueError(
                f"--algorithms {name} has no local steps to leave out; give localN, N > 1"
            )
        if name == "anytime" and threshold is None and settings.compute is None:
            raise ValueError(
                "--algorithms anytime needs --threshold, or --compute, from which the mean time of "
                "a step is known"
            )
        measured = settings.calibration_steps * (period or 1)
        if name != "anytime" and threshold is None and settings.steps <= measured:
            raise ValueError(
                f"--steps {settings.steps}: {name} measures {measured} versions before it drops "
                "anything; give more, or fewer --calibration-steps, or a --threshold"
            )


def stop_at_threshold(
    algorithm: Algorithm, stop: Stop, settings: Settings, delays: Delays
) -> wagma.DropCompute:
    """Return the policy around `algorithm`; collective.

    Args:
        algorithm: what averages.
        stop: what ends a step.
        settings: of the benchmark. Without a threshold DropCompute finds its own, and that of
            Anytime Minibatch is the mean emulated time of a step's micro-batches.
        delays: of every micro-batch.
    """
    import wagma

    if stop != "threshold":
        return wagma.DropCompute(
            *(algorithm, settings.micro_batches, settings.threshold or "auto"),
            calibration_steps=settings.calibration_steps,
            preempt=stop == "preempt",
        )
    return wagma.DropCompute(
        algorithm, None, settings.threshold or mean_step(settings, delays), correction="stochastic"
    )


def mean_step(settings: Settings, delays: Delays) -> float:
    """Return the mean emulated seconds of a step: its computing, and the delays of its parts."""
    assert settings.compute is not None
    count = settings.micro_batches
    return settings.compute + count * float(delays.table(settings.steps * count).mean())


def summary(stats: Sequence[dict[str, Any]]) -> dict[str, float | None] | None:
    """Return the figures of the ranks' policies: means, None for what is not finite.

    Args:
        stats: of each rank, by the names of FIGURES; empty ones: there is no policy.
    """
    if not all(stats):
        return None
    means = {name: fmean(float(each[name]) for each in stats) for name in FIGURES}
    return {name: mean if math.isfinite(mean) else None for name, mean in means.items()}
