"""One training with one algorithm, timed on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wagma.inject import Fault, Injector
from wagma.launch.ranks import meet
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.strategies.base import Algorithm

from . import ddp
from .algorithms import Compared
from .settings import Settings
from .stopping import FIGURES
from .tasks import Batch, Task
from .timed import Snapshots, check_one_model, mean_over_ranks, run_steps

if TYPE_CHECKING:
    from mpi4py import MPI

# Snapshots of the model in a training, about.
SNAPSHOTS = 40
BOUNDARY_S = 1e-3  # of emulated computing between the boundaries of two modules


@dataclass(slots=True)
class Trained:
    """What was measured, on all ranks."""

    # every rank's `timed.RankRecord` as a dict, and beside it "micro_batches": how many it has
    # computed; "behind": how many of them took longer than the emulated time; "stats": of its
    # policy, see `stopping.summary`; empty without one
    records: list[dict[str, Any]]
    snapshot_versions: list[int]  # after how many versions the model was copied
    snapshot_values: list[float]  # the task's measure of the averaged copies
    final_value: float  # of the final model
    # ``mean ||w_r - mean|| / ||mean||`` of the ranks' models just before their averaging, at every
    # sync_period-th version that all ranks made
    consensus: list[float] = field(default_factory=list)


class _Computing:
    """What a rank does before it calls its optimizer: gradients, emulated time, delays."""

    def __init__(
        self,
        settings: Settings,
        compared: Compared,
        imbalance: Injector,
        task: Task,
        model: nn.Module,
        seed: int,
    ) -> None:
        self.optimizer: DistributedOptimizer | None = None
        self.version = 0
        self.micro_batches = 0
        self.behind = 0
        self._stop = compared.stop
        self._endless = count()  # the micro-batches of a rank that makes as many as it can
        self._settings = settings
        self._imbalance = imbalance
        self._task = task
        self.model = model
        self._seed = seed
        self._faults = Injector(
            imbalance.size, tuple(one for one in imbalance.events if isinstance(one, Fault))
        )
        # What the threshold ends it finds between modules: emulated computing has some, too.
        self._boundary = nn.Identity() if compared.stop == "preempt" else None
        if self._boundary is not None:
            model.add_module("emulated", self._boundary)

    def __call__(self, version: int) -> bool:
        optimizer, parts = self.optimizer, self._settings.micro_batches
        assert optimizer is not None
        self.version = version
        if optimizer.pending:
            return False
        optimizer.zero_grad()
        numbers: Iterable[int] = range(version * parts, (version + 1) * parts)
        if self._stop is not None:
            # It divides by the micro-batches itself.
            numbers = self._endless if self._stop == "threshold" else numbers
            numbers, parts = optimizer.micro_batches(numbers), 1
        delayed = False
        for number in numbers:
            if optimizer.should_stop():
                break
            accumulates = self._stop is None and (number + 1) % parts > 0
            with ExitStack() as blocks:
                if self._boundary is not None:
                    blocks.enter_context(optimizer.micro_batch())
                if accumulates:
                    self._hold(blocks)
                delayed |= self._compute(optimizer.algorithm, number, 1 / parts)
        return delayed

    def _hold(self, blocks: ExitStack) -> None:
        """Keep gradients that are not complete from leaving, until `blocks` end."""
        assert self.optimizer is not None
        blocks.enter_context(self.optimizer.no_sync())
        if isinstance(self.model, DistributedDataParallel):
            blocks.enter_context(self.model.no_sync())

    def _compute(self, algorithm: Algorithm, number: int, factor: float) -> bool:
        """Add the gradient of a micro-batch, times `factor`; return whether it was delayed."""
        begin = time.perf_counter()
        settings = self._settings
        samples = settings.batch // settings.micro_batches
        batch = Batch(algorithm.rank, algorithm.size, number, samples, self._seed)
        loss, cost = self._task.loss(self.model, batch)
        (factor * loss).backward()  # type: ignore[no-untyped-call]
        if settings.compute is not None:
            left = begin + settings.compute / settings.micro_batches * cost - time.perf_counter()
            self._sleep(left)
            self.behind += left < 0
        self._faults.inject(algorithm.rank, number)
        delay = self._imbalance.delay(algorithm.rank, number)
        self._sleep(delay)
        self.micro_batches += 1
        return delay > 0 or self._imbalance.strikes(algorithm.rank, number)

    def _sleep(self, seconds: float) -> None:
        """Sleep in place of computing: a policy may end it, or nobody may want it any more."""
        assert self.optimizer is not None
        cancels = type(self.optimizer.algorithm).should_stop is not Algorithm.should_stop
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if self._boundary is None and not cancels:
                time.sleep(left)
                break
            time.sleep(min(left, BOUNDARY_S))
            if self._boundary is not None:
                self._boundary(torch.empty(0))
            if self.optimizer.should_stop():
                break


class _Consensus:
    """Copies of a rank's own models, before they are averaged, once in `period` versions.

    If a step applies several averaged gradients, it is the model after the first of them.
    """

    def __init__(self, like: torch.Tensor, versions: int, period: int) -> None:
        self._period = period
        self._taken = -1
        self.rows = torch.full((versions // period, like.numel()), torch.nan, dtype=like.dtype)

    def take(self, version: int, flat: torch.Tensor) -> None:
        """Copy, if this is one of the versions."""
        if (version + 1) % self._period == 0 and version > self._taken:
            self.rows[version // self._period] = flat[: self.rows.shape[1]]
            self._taken = version

    def distances(self, comm: MPI.Intracomm) -> list[float]:
        """Return the distances at the versions that all ranks made; collective."""
        means = torch.from_numpy(mean_over_ranks(comm, self.rows))
        own = (self.rows - means).norm(dim=1) / means.norm(dim=1)
        every = mean_over_ranks(comm, own)
        return [float(value) for value in every if np.isfinite(value)]


def train(
    comm: MPI.Intracomm,
    settings: Settings,
    compared: Compared,
    seed: int,
    task: Task,
    imbalance: Injector,
    progress: Callable[[int], None],
    stopped: Callable[[], bool],
) -> Trained | None:
    """Train once; collective.

    Args:
        comm: the ranks that train together.
        settings: the same on every rank.
        compared: the algorithm.
        seed: of model and batches.
        task: its data, equal on all ranks.
        imbalance: drawn by the seed.
        progress: is told after every step how many versions are done.
        stopped: asked before every step whether to stop.

    Returns:
        What was measured, on every rank; None if some rank was stopped.
    """
    model = task.build_model(seed)
    used = list(model.parameters())
    padding = _padding(used, settings.parameters)
    inner = task.optimizer([*used, *padding], settings.learning_rate)
    computing = _Computing(settings, compared, imbalance, task, model, seed)
    _warm_up(task, settings, comm.rank, comm.size, seed)
    algorithm = compared.make(comm, settings, imbalance)
    passes = model if compared.stop == "preempt" else None  # which the threshold ends
    with DistributedOptimizer(inner, algorithm, model=passes) as optimizer:
        computing.optimizer = optimizer
        parameters = optimizer.algorithm.parameters
        slots = parameters.layout.slots
        end = slots[len(used)].offset if len(slots) > len(used) else parameters.flat.numel()
        like = parameters.flat[:end].clone()  # what is evaluated; the padding follows
        snapshots = Snapshots(like, settings.steps, snapshot_period(settings))
        consensus = _Consensus(like, settings.steps, settings.sync_period)
        hook = inner.register_step_post_hook(
            lambda *_: consensus.take(computing.version, parameters.flat)
        )
        if getattr(optimizer.algorithm, "is_server", False):  # its versions are made in one step
            made = count(1)
            inner.register_step_post_hook(lambda *_: snapshots.take(next(made), parameters.flat))
        meet(comm)
        with ExitStack() as block:
            if compared.by_ddp:
                computing.model = block.enter_context(ddp.wrapped(comm, model, padding))
                together = ddp.Together(comm, stopped)
                block.callback(together.close)
                stopped = together.now
            record = run_steps(optimizer, settings.steps, computing, snapshots, progress, stopped)
        found = optimizer.stats()
    hook.remove()
    # Every rank has left the training: for one that was stopped in it nobody waits there.
    meet(comm)
    if comm.allreduce(record.end_seconds == 0.0):
        return None
    own = {
        **asdict(record),
        "micro_batches": computing.micro_batches,
        "behind": computing.behind,
        "stats": {name: found[name] for name in FIGURES if name in found},
    }
    records = comm.allgather(own)
    flat = parameters.flat[:end]
    check_one_model(comm, flat)
    final = flat.clone()
    versions, values = _evaluate(comm, settings, snapshots, model, flat, task)
    flat.copy_(final)
    final_value = task.evaluate(model) if comm.rank == 0 else 0.0
    meet(comm)
    final_value = comm.bcast(final_value)
    return Trained(records, versions, values, final_value, consensus.distances(comm))


def snapshot_period(settings: Settings) -> int:
    """Return the number of versions from one snapshot of the model to the next."""
    return -(-settings.steps // SNAPSHOTS)


def _padding(used: list[nn.Parameter], total: int | None) -> list[nn.Parameter]:
    """Return a parameter without gradient that makes `total` of them: it is only communicated."""
    missing = (total or 0) - sum(parameter.numel() for parameter in used)
    return [nn.Parameter(torch.rand(missing))] if missing > 0 else []


def _warm_up(task: Task, settings: Settings, rank: int, size: int, seed: int) -> None:
    """Run a model once: what torch prepares at its first call is no step of the training."""
    parts = settings.micro_batches
    batch = Batch(rank, size, settings.steps * parts, settings.batch // parts, seed)
    task.loss(task.build_model(seed), batch)[0].backward()  # type: ignore[no-untyped-call]


def _evaluate(
    comm: MPI.Intracomm,
    settings: Settings,
    snapshots: Snapshots,
    model: nn.Module,
    flat: torch.Tensor,
    task: Task,
) -> tuple[list[int], list[float]]:
    """Evaluate the averaged snapshots, each rank its share of them; collective."""
    means = torch.from_numpy(mean_over_ranks(comm, snapshots.rows))
    own = {}
    for row in range(comm.rank, len(means), comm.size):
        flat.copy_(means[row])
        own[row] = task.evaluate(model)
    meet(comm)
    found = {row: value for values in comm.allgather(own) for row, value in values.items()}
    period = snapshot_period(settings)
    return [period * (row + 1) for row in sorted(found)], [found[row] for row in sorted(found)]
