"""One training of the demo, timed on every rank.

Nothing is evaluated while the clock runs: every rank copies its parameters every few steps (tens of
kilobytes, microseconds), and the averaged models are evaluated from these copies afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from wagma.algorithms import WAGMA, Algorithm, AllreduceSGD
from wagma.demo.data import Digits, build_model, draw_batch
from wagma.demo.ranks import meet
from wagma.demo.settings import Settings
from wagma.inject import Injector
from wagma.optimizer import DistributedOptimizer

__all__ = ["RankRecord", "train"]

# Called on every rank after each of its steps with the number of steps done.
Progress = Callable[[int], None]


@dataclass(slots=True)
class RankRecord:
    """What one rank measured; lists have one entry per step, times are in seconds.

    Attributes:
        rank: whose record it is.
        step_seconds: duration of each step, its delay and waiting included.
        waited_seconds: how much of it was waiting for other ranks.
        delayed: whether a delay was injected in this rank's step, or a fault.
        late: whether its contribution came too late.
        snapshot_seconds: when each snapshot was taken, from the common start.
        end_seconds: when the training was over, its final averaging included, from the start.
    """

    rank: int
    step_seconds: list[float] = field(default_factory=list)
    waited_seconds: list[float] = field(default_factory=list)
    delayed: list[bool] = field(default_factory=list)
    late: list[bool] = field(default_factory=list)
    snapshot_seconds: list[float] = field(default_factory=list)
    end_seconds: float = 0.0


def train(
    comm: MPI.Intracomm,
    settings: Settings,
    imbalance: Injector,
    name: str,
    digits: Digits,
    progress: Progress,
) -> dict[str, Any]:
    """Trains with one algorithm; collective.

    Args:
        comm: the ranks that train together.
        settings: the same on every rank.
        imbalance: what the settings say of it.
        name: of the algorithm, a key of `ALGORITHMS`.
        digits: all samples.
        progress: is told after every step.

    Returns:
        The run as plain values for JSON: every rank's `RankRecord`, the steps and test accuracies
        of the averaged models, and the test accuracy of the final model.
    """
    model = build_model(settings.seed)
    shard = digits.shard(comm.rank, comm.size)
    _warm_up(settings, shard)
    inner = torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=settings.momentum
    )
    with DistributedOptimizer(inner, _algorithm(comm, settings, name)) as optimizer:
        record, snapshots = _loop(comm, settings, imbalance, model, optimizer, shard, progress)
        flat = optimizer.algorithm.parameters.flat
        final = flat.clone()
    records = comm.gather(asdict(record), root=0)
    _check_one_model(comm, final)
    steps = list(range(settings.snapshot_every, settings.steps + 1, settings.snapshot_every))
    accuracies = [accuracy(model, flat, mean, digits) for mean in _means(comm, snapshots)]
    return {
        "algorithm": name,
        "ranks": records,
        "snapshot_steps": steps,
        "snapshot_accuracies": accuracies,
        "final_accuracy": accuracy(model, flat, final, digits),
    }


def _algorithm(comm: MPI.Intracomm, settings: Settings, name: str) -> Algorithm:
    if name == "allreduce":
        return AllreduceSGD(comm, transport=settings.transport)
    return WAGMA(
        comm,
        group_size=settings.group_size,
        sync_period=settings.sync_period,
        transport=settings.transport,
    )


def _loss(model: nn.Module, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(images), classes)


def _warm_up(settings: Settings, shard: Digits) -> None:
    """Runs a model once: what torch prepares at its first call is no step of the training."""
    model = build_model(settings.seed)
    _loss(model, *draw_batch(shard, settings.seed, 0, 0, settings.batch)).backward()  # type: ignore[no-untyped-call]


def _loop(
    comm: MPI.Intracomm,
    settings: Settings,
    imbalance: Injector,
    model: nn.Module,
    optimizer: DistributedOptimizer,
    shard: Digits,
    progress: Progress,
) -> tuple[RankRecord, torch.Tensor]:
    """All steps and the final averaging; returns the record and the snapshots, one per row."""
    record = RankRecord(comm.rank)
    flat = optimizer.algorithm.parameters.flat
    snapshots = torch.zeros(settings.steps // settings.snapshot_every, flat.numel())
    meet(comm)
    start = time.perf_counter()
    while (step := optimizer.version) < settings.steps:
        begin = time.perf_counter()
        batch = draw_batch(shard, settings.seed, comm.rank, step, settings.batch)
        optimizer.zero_grad()
        _loss(model, *batch).backward()  # type: ignore[no-untyped-call]
        delay = imbalance.inject(comm.rank, step)
        optimizer.step()
        end = time.perf_counter()
        outcome = optimizer.outcome
        assert outcome is not None
        record.step_seconds.append(end - begin)
        record.waited_seconds.append(outcome.waited)
        record.delayed.append(delay > 0 or imbalance.strikes(comm.rank, step))
        record.late.append(bool(outcome.late))
        done = optimizer.version
        if done % settings.snapshot_every == 0:
            snapshots[done // settings.snapshot_every - 1] = flat
            record.snapshot_seconds.append(time.perf_counter() - start)
        progress(done)
    optimizer.synchronize()
    record.end_seconds = time.perf_counter() - start
    return record, snapshots


def _check_one_model(comm: MPI.Intracomm, final: torch.Tensor) -> None:
    models = comm.allgather(final.numpy().tobytes())
    if len(set(models)) != 1:
        raise RuntimeError("the ranks ended with different models: this is a fault in wagma")


def _means(comm: MPI.Intracomm, snapshots: torch.Tensor) -> torch.Tensor:
    """The means over the ranks of each snapshot; on rank 0, no rows elsewhere."""
    own = snapshots.numpy()
    total = np.empty_like(own)
    comm.Reduce(own, total, op=MPI.SUM, root=0)
    return torch.from_numpy(total / comm.size) if comm.rank == 0 else snapshots[:0]


def accuracy(model: nn.Module, flat: torch.Tensor, values: torch.Tensor, digits: Digits) -> float:
    """Share of the test samples that `model` classifies rightly with `values` in its `flat`."""
    flat.copy_(values)
    with torch.no_grad():
        right = model(digits.test_images).argmax(dim=1) == digits.test_classes
    return float(right.double().mean())
