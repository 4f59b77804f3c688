"""One training of the demo, timed on every rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from wagma.demo.data import Digits, accuracy, build_model, draw_batch
from wagma.demo.settings import Settings
from wagma.inject import Injector
from wagma.launch.ranks import meet
from wagma.timed import Snapshots, check_one_model, mean_over_ranks, run_steps
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.strategies import WAGMA, Algorithm, AllreduceSGD

__all__ = ["train"]

# Called on every rank after each of its steps with the number of steps done.
Progress = Callable[[int], None]


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
        parameters = optimizer.algorithm.parameters
        snapshots = Snapshots(parameters.flat, settings.steps, settings.snapshot_every)
        compute = _Computing(settings, imbalance, model, optimizer, shard)
        meet(comm)
        record = run_steps(optimizer, settings.steps, compute, snapshots, progress)
        final = parameters.flat.clone()
    records = comm.gather(asdict(record), root=0)
    check_one_model(comm, final)
    steps = list(range(settings.snapshot_every, settings.steps + 1, settings.snapshot_every))
    means = torch.from_numpy(mean_over_ranks(comm, snapshots.rows))
    accuracies = []
    if comm.rank == 0:
        for mean in means:
            parameters.flat.copy_(mean)
            accuracies.append(accuracy(model, digits))
        parameters.flat.copy_(final)
    return {
        "algorithm": name,
        "ranks": records,
        "snapshot_steps": steps,
        "snapshot_accuracies": accuracies,
        "final_accuracy": accuracy(model, digits),
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


class _Computing:
    """What a rank does before it calls its optimizer: a gradient, and its injected delay."""

    def __init__(
        self,
        settings: Settings,
        imbalance: Injector,
        model: nn.Module,
        optimizer: DistributedOptimizer,
        shard: Digits,
    ) -> None:
        self._settings = settings
        self._imbalance = imbalance
        self._model = model
        self._optimizer = optimizer
        self._shard = shard
        self._rank = optimizer.algorithm.rank

    def __call__(self, step: int) -> bool:
        settings, rank = self._settings, self._rank
        batch = draw_batch(self._shard, settings.seed, rank, step, settings.batch)
        self._optimizer.zero_grad()
        _loss(self._model, *batch).backward()  # type: ignore[no-untyped-call]
        delay = self._imbalance.inject(rank, step)
        return delay > 0 or self._imbalance.strikes(rank, step)
