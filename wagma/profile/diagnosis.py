"""The slow rank of a training, and the cause. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from wagma.profile.contents import Seconds, TrainingProfile
from wagma.units import percent_text, plural, time_text

Cause = Literal["input", "compute", "communication"]
CAUSES: tuple[Cause, ...] = ("input", "compute", "communication")

MIN_STEPS = 10
LEAST = 0.05  # of the own time of a step: less is no difference
WORTH = 10  # times the recorded steps: more are not asked for
_UNSEEN = (
    "No collective was recorded: if ranks wait for each other in one, that counts as compute. Put "
    "profile.communication(nbytes) around it, and record again."
)
_NAMES = {"input": "input (waiting for data)"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What makes the steps of a training long.

    Attributes:
        slow_rank: the rank that is slower than the others all along; None: there is none.
        cause: the part of the step that differs most; None: ranks do not differ.
        seconds: per step, by which the slow rank's own time is longer than the mean of the
            others'. Without a slow rank: by which the longest own time of a step is longer than the
            mean. Synchronous methods wait that long, which others avoid in part.
        words: the same in words.
    """

    slow_rank: int | None
    cause: Cause | None
    seconds: float
    words: str


def diagnose(profile: TrainingProfile) -> Diagnosis:
    """Compare the own times of the ranks, step by step.

    A rank is slow if its own time is longer than the mean of the others' by at least 5%, and by so
    many standard errors that P equal ranks have a slow one in less than 1% of the profiles.

    Raises:
        ValueError: there are fewer than 10 steps.
    """
    if profile.steps < MIN_STEPS:
        raise ValueError(
            f"the profile has {plural(profile.steps, 'step')}, too few to tell which rank is slow: "
            f"record {MIN_STEPS} or more after the warm-up"
        )
    if profile.ranks == 1:
        return Diagnosis(None, None, 0.0, "There is one rank: it waits for nobody.")
    found = _compared(profile)
    if profile.communication_sizes:
        return found
    return replace(found, words=f"{found.words} {_UNSEEN}")


def _compared(profile: TrainingProfile) -> Diagnosis:
    own = profile.own
    usual = float(np.median(own.mean(axis=1)))
    rank = int(np.argmax(own.mean(axis=1)))
    excess = _excess(own, rank)
    mean = float(excess.mean())
    error = float(excess.std(ddof=1)) / math.sqrt(profile.steps)
    sure = math.sqrt(2 * math.log(100 * profile.ranks))  # a normal tail is below exp(-x^2 / 2)
    if mean > LEAST * usual and mean > sure * error:
        return _slow(profile, rank, mean)
    spread = own.max(axis=0) - own.mean(axis=0)
    seconds = float(spread.mean())
    if seconds <= LEAST * usual:
        return Diagnosis(None, None, seconds, f"No rank is slow.{_communicating(profile)}")
    cause = _largest(
        {part: float(np.ptp(getattr(profile, part), axis=0).mean()) for part in CAUSES}
    )
    words = (
        f"No rank is always slow, but the times of single steps differ, most in {_name(cause)}: "
        f"the last rank of a step comes {time_text(seconds)} later than the mean."
    )
    needed = math.ceil(profile.steps * (sure * error / mean) ** 2) if mean > 0 else 0
    if mean > LEAST * usual and needed <= WORTH * profile.steps:
        words += f" To tell whether rank {rank} is slow takes about {plural(needed, 'step')}."
    return Diagnosis(None, cause, seconds, words)


def _slow(profile: TrainingProfile, rank: int, seconds: float) -> Diagnosis:
    cause = _largest({part: float(_excess(getattr(profile, part), rank).mean()) for part in CAUSES})
    waited = float(np.delete(profile.wait, rank, axis=0).mean())
    words = (
        f"Rank {rank} on {profile.hosts[rank]} is slow: each step takes it {time_text(seconds)} "
        f"longer than the mean of the others, because of {_name(cause)}. The others wait "
        f"{time_text(waited)} per step."
    )
    return Diagnosis(rank, cause, seconds, words)


def _excess(times: Seconds, rank: int) -> Seconds:
    """Return by how much a rank's time of each step exceeds the mean of the others'."""
    return cast(Seconds, times[rank] - np.delete(times, rank, axis=0).mean(axis=0))


def _largest(parts: dict[Cause, float]) -> Cause:
    return max(parts, key=lambda part: parts[part])


def _name(cause: Cause) -> str:
    return _NAMES.get(cause, cause)


def _communicating(profile: TrainingProfile) -> str:
    share = float(profile.communication.sum() / max(profile.durations.sum(), 1e-9))
    return f" Communication is {percent_text(share)} of the time." if share >= LEAST else ""
