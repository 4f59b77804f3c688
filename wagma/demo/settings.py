"""What a demo does, in one value that every rank agrees on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wagma.collectives.options import Transport

__all__ = ["ALGORITHMS", "DELAY", "Asked", "Settings", "default_delayed_ranks"]

# Names on the command line and what they are called in tables.
ALGORITHMS = {"allreduce": "AllreduceSGD", "wagma": "WAGMA"}

# Seconds by which a rank is delayed unless something else is asked for.
DELAY = 0.05


def default_delayed_ranks(size: int) -> int:
    """Ranks delayed at every step: the paper's two, and fewer than all where there are only two.

    Args:
        size: ranks P, >= 1.
    """
    return min(2, size - 1)


@dataclass(frozen=True)
class Asked:
    """The command line as far as all ranks have to have the same; None: not given."""

    algorithms: tuple[str, ...]
    delay: float | None
    delayed_ranks: int | None
    imbalance: str | None
    steps: int
    group_size: int | None
    sync_period: int
    seed: int
    transport: Transport
    out: Path
    json: Path | None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a demo.

    Attributes:
        algorithms: keys of `ALGORITHMS`, in the order in which they run.
        imbalance: who is delayed when, in the text form of `wagma.inject`; drawn by the seed.
        steps: steps of every rank.
        group_size: of WAGMA.
        sync_period: of WAGMA, in steps.
        seed: of model, data and imbalance.
        transport: what the ranks talk through, as `wagma.collectives.Options.transport`.
        batch: samples per rank and step.
        learning_rate: of SGD.
        momentum: of SGD.
        target: accuracy whose time is reported, 0 to 1.
        snapshot_every: steps from one snapshot of the model to the next.
    """

    algorithms: tuple[str, ...]
    imbalance: str
    steps: int
    group_size: int
    sync_period: int
    seed: int
    transport: Transport = "auto"
    batch: int = 32
    learning_rate: float = 0.15
    momentum: float = 0.9
    target: float = 0.95
    snapshot_every: int = 5
