"""One training with one method, timed on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import wagma
from wagma.launch.ranks import meet
from wagma.theory.cannikin import NodeModel

from .emulated import LAYERS, EmulatedNode, factors, scaled
from .settings import ADAPTIVE, Settings

if TYPE_CHECKING:
    from mpi4py import MPI

BUCKETS = 4


@dataclass(frozen=True)
class Epoch:
    """What was measured in an epoch; equal on all ranks."""

    batches: tuple[int, ...]  # samples of each rank
    predicted: float | None  # seconds of a step, by the plan; None: it has no prediction
    seconds: float  # median of the steps, mean over the ranks
    total: float  # of all steps
    # seconds that `Cannikin.replan` took afterwards on the slowest rank, with the exchange of what
    # was measured
    planning: float
    planning_cpu: float  # seconds of CPU that it took on the rank that needed most


def train(
    comm: MPI.Intracomm,
    settings: Settings,
    method: str,
    nodes: Sequence[NodeModel],
    batch: int | tuple[int, int],
    noise_scale: float,
    advance: Callable[[int], None],
    stopped: Callable[[], bool],
) -> list[Epoch]:
    """Train once; collective.

    Args:
        comm: the ranks.
        settings: the same on every rank.
        method: one of `settings.METHODS`.
        nodes: of the ranks.
        batch: the total batch; or the smallest and the largest, for methods that choose it.
        noise_scale: of the gradients, samples.
        advance: is told after every step how many are done.
        stopped: asked after every epoch whether to stop; collective.

    Returns:
        The epochs that were finished.
    """
    model = EmulatedNode(comm.rank, settings.parameters, noise_scale)
    weights = list(model.parameters())
    total = batch[0] if isinstance(batch, tuple) and method not in ADAPTIVE else batch
    baseline: Any = None if method == "cannikin" else method
    algorithm = wagma.Cannikin(
        comm,
        total,
        scaling="none",
        baseline=baseline,
        bucket_bytes=LAYERS // BUCKETS * 4 * weights[0].numel(),
        transport=settings.transport,  # type: ignore[arg-type]
    )
    found = []
    # So small a rate that the weights stay what they are, and yet the update is computed.
    with wagma.DistributedOptimizer(torch.optim.SGD(weights, lr=1e-6), algorithm) as opt:
        meet(comm)
        for epoch in range(1, settings.epochs + 1):
            slower = factors(settings.slowdown, comm.size, epoch)[comm.rank]
            node = scaled(nodes[comm.rank], slower)
            done = (epoch - 1) * settings.steps
            plan = algorithm.plan
            took = _steps(opt, model, node, settings.steps, lambda i, done=done: advance(done + i))  # type: ignore[misc]
            meet(comm)  # a rank that is at the end of its last step is not planning
            began, used = time.perf_counter(), time.thread_time()
            algorithm.replan()
            planning = time.perf_counter() - began, time.thread_time() - used
            own = (float(np.median(took)), float(np.sum(took)), *planning)
            every = np.array(comm.allgather(own))
            seconds, whole = every[:, :2].mean(axis=0).tolist()
            found.append(
                Epoch(plan.batches, plan.predicted, seconds, whole, *every[:, 2:].max(axis=0))
            )
            if stopped():
                break
            meet(comm)
    meet(comm)
    return found


def _steps(
    opt: wagma.DistributedOptimizer,
    model: EmulatedNode,
    node: NodeModel,
    steps: int,
    advance: Callable[[int], None],
) -> list[float]:
    """Train an epoch; return the seconds of each step."""
    plan, rank = opt.plan, opt.algorithm.rank
    assert plan is not None
    batch, took = plan.batches[rank], []
    ended = time.perf_counter()
    for step in range(steps):
        began = ended
        opt.zero_grad()
        if batch:
            model(batch, node, began).backward()
        opt.step()
        ended = time.perf_counter()
        took.append(ended - began)
        advance(step + 1)
    return took
