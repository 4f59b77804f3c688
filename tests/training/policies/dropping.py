"""DropCompute under a clock that tests move: model, data, times, and a rank's part of a step."""

import copy
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import wagma

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
FEATURES, MOST = 3, 4

torch.set_num_threads(1)


class Clock:
    """A clock that goes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


def model_of(dtype: torch.dtype = torch.float64) -> torch.nn.Linear:
    model = torch.nn.Linear(FEATURES, 2, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    return model


def sample(step: int, rank: int, micro: int, count: int = 2) -> torch.Tensor:
    rng = np.random.default_rng([step, rank, micro])
    return torch.from_numpy(rng.normal(size=(count, FEATURES)))


def seconds(step: int, rank: int, micro: int) -> float:
    """What a micro-batch takes: of one rank per step much longer."""
    slow = (step + rank) % SIZE == 0
    return 1.0 + 0.125 * ((step + 3 * rank + 5 * micro) % 4) + 3.0 * slow * (micro % 2)


def finished(step: int, rank: int, threshold: float, most: int = MOST) -> int:
    """The micro-batches until the threshold: the one in progress then is finished."""
    ends = np.cumsum([seconds(step, rank, m) for m in range(most)])
    return int(min(most, 1 + (ends < threshold).sum()))


def loss_of(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return (model(inputs) - inputs.sum(1, keepdim=True)).square().sum(1).mean()


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def gradient(model: torch.nn.Module, batches: list[torch.Tensor]) -> torch.Tensor:
    """The sum of the micro-batches' gradients."""
    other = copy.deepcopy(model)
    other.zero_grad()
    for batch in batches:
        loss_of(other, batch).backward()
    return torch.cat([
        (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in other.parameters()
    ])  # fmt: skip


def made(model: torch.nn.Module, lr: float = 0.1, **arguments: Any) -> wagma.DistributedOptimizer:
    policy = wagma.DropCompute(wagma.AllreduceSGD(COMM), **{"micro_batches": MOST, **arguments})
    return wagma.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), policy)


def compute(opt: Any, model: torch.nn.Module, clock: Clock, step: int, most: int = MOST) -> int:
    opt.zero_grad()
    count = 0
    for micro, batch in enumerate(opt.micro_batches([sample(step, RANK, m) for m in range(most)])):
        loss_of(model, batch).backward()
        clock.now += seconds(step, RANK, micro)
        count += 1
    return count
