"""What the scenarios do, and for how long. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wagma.inject import Exponential

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Training:
    """Runs in which ranks compute (sleep) between their calls; times in seconds."""

    bytes: int = 1 * MIB
    grace_versions: int = 100
    grace_step: float = 0.05
    grace_jitter: float = 0.03  # standard deviation, as a share of the step
    versions: int = 200  # of one handle: with more the sleeper would fall behind by the window
    repeats: int = 3
    period: int = 50
    sleep: float = 0.3
    step: float = 0.005
    window: int = 128
    seed: int = 1
    idle: float = 2.0  # between two calls, while the progress thread is looked at


@dataclass(frozen=True)
class Fastest:
    """Versions that the fastest K ranks start; times in seconds."""

    bytes: int = 64 * KIB
    mean: float = 0.02  # of the exponential times of computing
    slowdown: float = 2.0  # of the slow rank, where there is one
    versions: int = 400
    rounds: int = 21  # calls before, that all ranks make together; the first is not counted
    window: int = 128  # so large that no rank is ever kept from going on
    seed: int = 1


def training(quick: bool) -> Training:
    """Return the plan of calls between training steps; if quick, with fewer versions."""
    return Training(grace_versions=20, versions=100, repeats=1, idle=0.5) if quick else Training()


def fastest(quick: bool) -> Fastest:
    """Return the plan of the fastest K; if quick, with fewer and shorter versions."""
    return Fastest(versions=40, mean=0.005) if quick else Fastest()


def draws(s: Fastest, ranks: int, slow: bool) -> npt.NDArray[np.float64]:
    """Return the seconds that each rank computes for each version, [versions, ranks].

    `slow`: the last rank computes `slowdown` times as long.
    """
    factors = (1.0,) * (ranks - 1) + (s.slowdown if slow else 1.0,)
    return Exponential(ranks, s.mean, factors, seed=s.seed).table(s.versions)
