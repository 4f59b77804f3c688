"""Trainings in which one rank asks to stop, and what every rank sees of it."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tiny import COMM, RANK, SIZE

import wagma
from wagma.algorithms import Algorithm

LIMIT = 400  # versions within which all have to stop


def exactly(period: int, later: int = 0) -> Callable[[int], int]:
    """Return by what version all stop when a rank has asked before another: the oracle.

    It is in what is averaged at the period's end, and known `later` versions after that.
    """
    return lambda asked: asked // period * period + period + later


@dataclass
class Case:
    """An algorithm, and the version at which all stop; None: one after that of the request."""

    make: Callable[..., Any]
    stops_at: Callable[[int], int] | None


def posted(make: Callable[..., Algorithm], every: int) -> Case:
    """Return the case of an algorithm that does not average all ranks."""
    return Case(make, exactly(every, every))


class Gossip(wagma.Algorithm):
    """As users write them: knows nothing of stops, and averages all ranks in none of its calls."""

    def connect(self, parameters: Any) -> Any:
        from wagma.collectives import GroupAllreduce

        group = min(2, self.size)
        return (
            GroupAllreduce(self.comm, parameters.flat, group_size=group, window=3, **self.waits),
        )

    def after_step(self) -> None:
        self.outcome = self.collective.allreduce(self.parameters.flat, self.weight)  # type: ignore[attr-defined]
        self.parameters.written()

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        self.outcome = self.collective.sync(self.parameters.flat)  # type: ignore[attr-defined]
        self.parameters.written()


def fastest(comm: Any) -> Algorithm:
    return wagma.FastestK(comm, 1, burnin=3, thresh=1)


NEXT = exactly(1)
CASES: dict[str, Case] = {
    "AllreduceSGD": Case(wagma.AllreduceSGD, NEXT),
    "AllreduceSGD-buckets": Case(partial(wagma.AllreduceSGD, bucket_bytes=8), NEXT),
    "Cannikin": Case(lambda comm: wagma.Cannikin(comm, 4 * comm.size, epoch_steps=3), NEXT),
    "LocalSGD": Case(partial(wagma.LocalSGD, sync_period=3), exactly(3)),
    "DiLoCo": Case(partial(wagma.DiLoCo, sync_period=3), exactly(3)),
    "DiLoCo-overlap": Case(partial(wagma.DiLoCo, sync_period=3, overlap=True), exactly(3, 3)),
    "WAGMA": Case(partial(wagma.WAGMA, sync_period=4), exactly(4)),
    "WAGMA-waiting": Case(partial(wagma.WAGMA, sync_period=4, wait_avoiding=False), exactly(4)),
    "WAGMA-forward": Case(partial(wagma.WAGMA, sync_period=4, missed="fast-forward"), exactly(4)),
    "EagerSGD-solo": Case(wagma.EagerSGD, None),
    "EagerSGD-majority": Case(partial(wagma.EagerSGD, variant="majority"), None),
    "KSync-1": Case(partial(wagma.KSync, k=1), None),
    "KSync-half": Case(lambda comm: wagma.KSync(comm, -(-comm.size // 2)), None),
    "KSync-all": Case(lambda comm: wagma.KSync(comm, comm.size), NEXT),
    "KAsync": Case(partial(wagma.KAsync, k=1), None),
    "FastestK": Case(fastest, None),
    "WAGMA-none": posted(partial(wagma.WAGMA, sync_period=None, window=4), 5),
    "ADPSGD": posted(partial(wagma.ADPSGD, window=4), 5),
    "DPSGD": posted(wagma.DPSGD, SIZE + 1),
    "SGP": posted(wagma.SGP, SIZE + 1),
    "DiLoCo-groups": posted(lambda comm: wagma.DiLoCo(comm, 2, group_size=min(2, comm.size)), 4),
    "own": posted(Gossip, 4),
}
# One of each mechanism: in every average, at a period's end, that after it, of models in groups, of
# those that have come, posted.
SHORT = (
    *("AllreduceSGD-buckets", "LocalSGD", "DiLoCo-overlap", "WAGMA-forward"),
    *("EagerSGD-solo", "KSync-1", "FastestK", "ADPSGD", "SGP", "own"),
)


def new_parameters(dtype: torch.dtype = torch.float64) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.linspace(0, 1, n).to(dtype)) for n in (3, 4)]


def new_optimizer(algorithm: Any, dtype: torch.dtype = torch.float64) -> wagma.DistributedOptimizer:
    inner = torch.optim.SGD(new_parameters(dtype), lr=0.01, momentum=0.5)
    return wagma.DistributedOptimizer(inner, algorithm)


def backward(opt: wagma.DistributedOptimizer, rank: int = RANK) -> None:
    """Compute gradients that differ between ranks and versions."""
    opt.zero_grad()
    tensors = opt.param_groups[0]["params"]
    loss = sum(((one - (opt.version + 3 * rank) % 5) ** 2).sum() for one in tensors)
    loss.backward()


@dataclass
class Delays:
    """Late ranks, drawn alike on all."""

    seed: int

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed} {RANK}")
        self._slow = random.Random(self.seed).randrange(SIZE)

    def sleep(self) -> None:
        time.sleep(self._random.choice((0, 0, 0.001, 0.004 if self._slow == RANK else 0)))


def train(
    opt: wagma.DistributedOptimizer,
    asker: int,
    when: int,
    delays: Delays | None = None,
    step: Callable[[wagma.DistributedOptimizer], object] | None = None,
    limit: float = LIMIT,
) -> int:
    """Make steps until all stop; rank `asker` asks before version `when`, or the next it has.

    Returns:
        The version at which it has asked; on the others that of their end.
    """
    asked, until = -1, time.monotonic() + 60
    while not opt.stopping and opt.version < limit:
        assert time.monotonic() < until, "nobody stops"
        if asker == RANK and asked < 0 and opt.version >= when:
            opt.request_stop()
            asked = opt.version
        if delays is not None:
            delays.sleep()
        if step is not None:
            step(opt)
        else:
            if not opt.pending:
                backward(opt)
            opt.step()
    return asked if asker == RANK else opt.version


def check_alike(opt: wagma.DistributedOptimizer, asked: int, asker: int, case: Case) -> None:
    """Check that all ranks have stopped, at the version of the oracle."""
    ends = COMM.allgather((opt.stopping, opt.version))
    assert ends == [(True, ends[0][1])] * SIZE
    asked = COMM.bcast(asked, asker)
    if case.stops_at is not None:
        assert ends[0][1] == case.stops_at(asked)
    else:
        assert asked < ends[0][1] < LIMIT
