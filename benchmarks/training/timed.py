"""A training's steps, timed on every rank, and snapshots of the model that are evaluated later.

Nothing is evaluated while the clock runs: every rank copies its parameters every few versions (tens
of kilobytes, microseconds), and the averaged models are evaluated from these copies afterwards.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from mpi4py import MPI

from wagma.collectives import Outcome
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.strategies.kasync import KAsync


@dataclass(slots=True)
class RankRecord:
    """What one rank measured; lists have one entry per step, times are in seconds."""

    rank: int  # whose record it is
    versions: list[int] = field(default_factory=list)  # which version each step was
    # duration of each step, its delay and waiting included
    step_seconds: list[float] = field(default_factory=list)
    # how much of it was in the distributed optimizer's step
    called_seconds: list[float] = field(default_factory=list)
    # how much of it was waiting for other ranks
    waited_seconds: list[float] = field(default_factory=list)
    # whether a delay was injected in this rank's step, or a fault
    delayed: list[bool] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)  # whether its contribution came too late
    # how many contributions of which age were averaged, in versions
    staleness: dict[int, int] = field(default_factory=dict)
    # when each snapshot was taken, from the common start
    snapshot_seconds: list[float] = field(default_factory=list)
    # when the training was over, its final averaging included, from the start; 0 if it was stopped
    # before
    end_seconds: float = 0.0


class Snapshots:
    """Copies of a flat array, taken whenever so many more versions are done.

    Args:
        like: 1-d tensor of as many elements, of the same dtype, as are copied.
        versions: of the whole training.
        every: versions from one copy to the next.

    Attributes:
        rows: the copies: [versions // every, elements of `like`].
        start: when the training began, on the clock of `time.perf_counter`.
        seconds: when each copy was taken, from then on.
    """

    def __init__(self, like: torch.Tensor, versions: int, every: int) -> None:
        self._every = every
        self._taken = 0
        self.start = 0.0
        self.seconds: list[float] = []
        self.rows = torch.zeros(versions // every, like.numel(), dtype=like.dtype)

    def take(self, done: int, flat: torch.Tensor) -> None:
        """Copy the start of `flat`, if it is time; more than once when versions were left out."""
        due = min(done // self._every, len(self.rows))
        count = due - self._taken
        if count > 0:
            self.rows[self._taken : due] = flat[: self.rows.shape[1]]
            self._taken = due
            self.seconds += [time.perf_counter() - self.start] * count


def run_steps(
    optimizer: DistributedOptimizer,
    steps: int,
    compute: Callable[[int], bool],
    snapshots: Snapshots,
    progress: Callable[[int], None],
    stopped: Callable[[], bool] = lambda: False,
) -> RankRecord:
    """Make all steps and the final averaging; collective, all ranks begin at once.

    Args:
        optimizer: at version 0.
        steps: versions to make.
        compute: makes the gradients of a version; returns whether this rank was delayed at it.
        snapshots: are taken.
        progress: is told after every step how many versions are done.
        stopped: asked before every step; the rank then ends without the final averaging.
    """
    record = RankRecord(optimizer.algorithm.rank)
    snapshots.start = start = end = time.perf_counter()
    record.snapshot_seconds = snapshots.seconds
    before, waited = None, 0.0
    while (version := optimizer.version) < steps:
        if stopped():
            return record
        delayed = compute(version)
        called = time.perf_counter()
        optimizer.step()
        begin, end = end, time.perf_counter()
        outcome = optimizer.outcome
        fresh = outcome is not None and outcome is not before  # some steps average nothing
        record.versions.append(version)
        record.step_seconds.append(end - begin)
        record.called_seconds.append(end - called)
        if outcome is not None and fresh:
            record.waited_seconds.append(outcome.waited)
        else:  # parameter servers and their learners have no outcomes, and a sum instead
            total = optimizer.algorithm.stats().get("waited_seconds", waited)
            record.waited_seconds.append(total - waited)
            waited = total
        record.delayed.append(delayed)
        record.late.append(bool(outcome is not None and fresh and outcome.late))
        if outcome is not None and fresh:
            for age in _ages(optimizer, outcome):
                record.staleness[age] = record.staleness.get(age, 0) + 1
        before = outcome
        flat = optimizer.algorithm.parameters.flat
        snapshots.take(optimizer.version, flat)
        progress(optimizer.version)
    optimizer.synchronize()
    record.end_seconds = time.perf_counter() - start
    return record


def _ages(optimizer: DistributedOptimizer, outcome: Outcome) -> list[int]:
    """Return how many versions the contributions of an average are old."""
    if isinstance(optimizer.algorithm, KAsync):  # each rank counts its own
        return [] if outcome.late else [outcome.staleness]
    newest = max(outcome.version, *outcome.versions, 0)
    return [newest - contributed for contributed in outcome.versions]


def check_one_model(comm: MPI.Intracomm, model: torch.Tensor) -> None:
    """Compare the ranks' final models, bit by bit; collective.

    Raises:
        RuntimeError: they differ.
    """
    models = comm.allgather(model.numpy().tobytes())
    if len(set(models)) != 1:
        raise RuntimeError("the ranks ended with different models: this is a fault in wagma")


def mean_over_ranks(comm: MPI.Intracomm, rows: torch.Tensor) -> npt.NDArray[np.float32]:
    """Return the means over the ranks of rows of one shape and dtype; collective."""
    own = rows.numpy()
    total = np.empty_like(own)
    comm.Allreduce(own, total, op=MPI.SUM)
    total /= comm.size
    return total
