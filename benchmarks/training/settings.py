"""What a training benchmark was asked to do, in one value that every rank agrees on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wagma.collectives.options import Transport


@dataclass(frozen=True)
class Settings:
    """The command line, checked and with defaults filled in; times in seconds."""

    task: str  # one of `tasks.NAMES`
    algorithms: tuple[str, ...]  # names of `algorithms.find`, in the order in which they run
    imbalance: str  # who is delayed when, in the text form of `wagma.inject`
    # of a step of average cost, emulated; None: as long as the gradient takes
    compute: float | None
    parameters: int | None  # to which the model is padded; None: as many as it has
    steps: int  # versions of every rank
    seeds: tuple[int, ...]  # of model, data and imbalance; each algorithm runs once with each
    sync_period: int  # of WAGMA, in versions; consensus is measured once in so many by all
    group_size: int | None  # of WAGMA; None: its default
    batch: int  # samples per rank and step
    learning_rate: float  # of the task's optimizer
    transport: Transport  # what the ranks talk through, as `wagma.collectives.Options.transport`
    target: float  # of the task's measure, whose time is reported
    json: str | None  # file for the results, or None
    plots: str | None  # folder for the pictures, or None
    picture: str | None = None  # file for accuracy and waiting side by side, or None
    micro_batches: int = 1  # into which the batch of a step is split, M
    # at which DropCompute and Anytime Minibatch stop; None: found or derived
    threshold: float | None = None
    # steps, or periods, from whose times DropCompute finds its threshold
    calibration_steps: int = 10
