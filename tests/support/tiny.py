"""Tiny trainings: models, batches and algorithms that tests of the optimizer share."""

import hashlib
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
import torch
from mpi4py import MPI
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm

T = TypeVar("T")

torch.set_num_threads(1)  # the models are tiny

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "LBFGS": lambda p: torch.optim.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"),
}
# As a user makes them.
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "WAGMA": wagma.WAGMA,
    "AllreduceSGD": wagma.AllreduceSGD,
    "Auto": wagma.Auto,
    "LocalSGD": lambda comm: wagma.LocalSGD(comm, sync_period=3),
    "DiLoCo-groups": lambda comm: wagma.DiLoCo(comm, 1, group_size=min(2, comm.size)),
    "DiLoCo-overlap": lambda comm: wagma.DiLoCo(comm, sync_period=3, overlap=True),
    "DPSGD": wagma.DPSGD,
    "SGP": wagma.SGP,
    "ADPSGD": wagma.ADPSGD,
    "EagerSGD-solo": lambda comm: wagma.EagerSGD(comm, "solo"),
    "EagerSGD-majority": lambda comm: wagma.EagerSGD(comm, "majority"),
    "KSync": lambda comm: wagma.KSync(comm, -(-comm.size // 2)),
    "KAsync": lambda comm: wagma.KAsync(comm, 1),
}
# Nobody is late if all call a version at one time (see `on_time`): what a run computes then depends
# on no clock.
ON_TIME: dict[str, Callable[..., Algorithm]] = {
    "WAGMA": lambda comm: wagma.WAGMA(comm, sync_period=4, grace=20.0),
    "WAGMA-all": lambda comm: wagma.WAGMA(comm, sync_period=1),
    "WAGMA-waiting": lambda comm: wagma.WAGMA(comm, sync_period=6, wait_avoiding=False),
    "AllreduceSGD": wagma.AllreduceSGD,
    "LocalSGD": lambda comm: wagma.LocalSGD(comm, sync_period=3),
    "DiLoCo": lambda comm: wagma.DiLoCo(comm, sync_period=3),
    "DiLoCo-overlap": lambda comm: wagma.DiLoCo(comm, sync_period=3, overlap=True),
    "DPSGD": wagma.DPSGD,
    "SGP": wagma.SGP,
    "EagerSGD-solo": lambda comm: wagma.EagerSGD(comm, "solo", grace=20.0),
    "EagerSGD-majority": lambda comm: wagma.EagerSGD(comm, "majority", grace=20.0),
    "KSync": lambda comm: wagma.KSync(comm, comm.size),
    "KAsync": lambda comm: wagma.KAsync(comm, comm.size),
}

# One algorithm of each mechanism: models in groups and of all ranks, gradients of all ranks and of
# those that have come, neighbours.
EACH_KIND = ("WAGMA", "LocalSGD", "AllreduceSGD", "EagerSGD-solo", "SGP")
ON_TIME_EACH_KIND = ("WAGMA", "DiLoCo-overlap", "AllreduceSGD", "KSync", "SGP")

# Seconds between all ranks' meeting and their call of a version, in one attempt after the other.
PAUSES_S = [0.004 * 4**attempt for attempt in range(5)]


def mostly_long(names: Iterable[str], short: Iterable[str]) -> list[Any]:
    """Parameters of a test: the short run has those in `short`."""
    long = pytest.mark.long
    return [name if name in short else pytest.param(name, marks=long) for name in names]


def on_time(play: Callable[[Callable[[], None]], tuple[wagma.DistributedOptimizer, T]]) -> T:
    """What `play` gives beside its optimizer, in the first attempt in which nobody was late.

    For whom a version is held open is told by messages that nobody awaits: a rank that calls before
    it has received them leaves others out.

    Args:
        play: trains with a new optimizer, and calls its argument before every version.
    """
    for pause in PAUSES_S:

        def meet(pause: float = pause) -> None:
            COMM.Barrier()
            time.sleep(pause)

        optimizer, result = play(meet)
        if not any(COMM.allgather(optimizer.stats()["late"])):
            return result
    pytest.fail("somebody was late in every attempt")


def build_model(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)
    ).double()


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * step + rank)).double()


def loss_of(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(inputs)[:, 0] - inputs.prod(dim=1)).square().mean()
    return loss


def step_on(model: torch.nn.Module, optimizer: Optimizer, inputs: torch.Tensor) -> None:
    """One step without a closure."""
    optimizer.zero_grad()
    loss_of(model, inputs).backward()
    optimizer.step()


def values(model: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def on_all_ranks(*tensors: torch.Tensor) -> list[str]:
    """Digests of the ranks' tensors."""
    content = b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)
    return COMM.allgather(hashlib.sha256(content).hexdigest()[:8])
