"""What a training benchmark was asked to do, in one value that every rank agrees on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wagma.collectives.options import Transport

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The command line, checked and with defaults filled in; times in seconds.

    Attributes:
        task: one of `tasks.NAMES`.
        algorithms: names of `algorithms.find`, in the order in which they run.
        imbalance: who is delayed when, in the text form of `wagma.inject`.
        compute: of a step of average cost, emulated; None: as long as the gradient takes.
        parameters: to which the model is padded; None: as many as it has.
        steps: versions of every rank.
        seeds: of model, data and imbalance; each algorithm runs once with each.
        sync_period: of WAGMA, in versions; consensus is measured once in so many by all.
        group_size: of WAGMA; None: its default.
        batch: samples per rank and step.
        learning_rate: of the task's optimizer.
        transport: what the ranks talk through, as `wagma.collectives.Options.transport`.
        target: of the task's measure, whose time is reported.
        json: file for the results, or None.
        plots: folder for the pictures, or None.
        picture: file for accuracy and waiting side by side, or None.
        micro_batches: into which the batch of a step is split, M.
        threshold: at which DropCompute and Anytime Minibatch stop; None: found or derived.
        calibration_steps: steps, or periods, from whose times DropCompute finds its threshold.
    """

    task: str
    algorithms: tuple[str, ...]
    imbalance: str
    compute: float | None
    parameters: int | None
    steps: int
    seeds: tuple[int, ...]
    sync_period: int
    group_size: int | None
    batch: int
    learning_rate: float
    transport: Transport
    target: float
    json: str | None
    plots: str | None
    picture: str | None = None
    micro_batches: int = 1
    threshold: float | None = None
    calibration_steps: int = 10
