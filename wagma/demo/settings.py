"""What a demo does, in one value that every rank agrees on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALGORITHMS", "Settings", "default_delayed_ranks"]

# Names on the command line and what they are called in tables.
ALGORITHMS = {"allreduce": "AllreduceSGD", "wagma": "WAGMA"}


def default_delayed_ranks(size: int) -> int:
    """Ranks delayed at every step: the paper's two, and fewer than all where there are only two.

    Args:
        size: ranks P, >= 1.
    """
    return min(2, size - 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a demo.

    Attributes:
        algorithms: keys of `ALGORITHMS`, in the order in which they run.
        delay: seconds that a delayed rank sleeps in a step.
        delayed_ranks: ranks that are delayed at every step, drawn anew for each.
        steps: steps of every rank.
        group_size: of WAGMA.
        sync_period: of WAGMA, in steps.
        seed: of model, data and delays.
        batch: samples per rank and step.
        learning_rate: of SGD.
        momentum: of SGD.
        target: accuracy whose time is reported, 0 to 1.
        snapshot_every: steps from one snapshot of the model to the next.
    """

    algorithms: tuple[str, ...]
    delay: float
    delayed_ranks: int
    steps: int
    group_size: int
    sync_period: int
    seed: int
    batch: int = 32
    learning_rate: float = 0.15
    momentum: float = 0.9
    target: float = 0.95
    snapshot_every: int = 5
