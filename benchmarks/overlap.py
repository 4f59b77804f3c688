"""Steps whose gradients leave in one piece, in buckets while backward computes, and with DDP.

``mpiexec -n 2 python -m wagma.benchmarks.overlap``: linear layers without and with a sleep in each
layer's backward; AllreduceSGD in one piece, AllreduceSGD in buckets, and torch's
DistributedDataParallel over gloo. Milliseconds per step of the slowest rank, medians of runs that
are interleaved in one process.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import torch
from mpi4py import MPI
from torch import nn

from wagma.algorithms import AllreduceSGD
from wagma.launch.options import integer, reader
from wagma.training.optimizer import DistributedOptimizer
from wagma.units import parse_duration, parse_size, size_text, time_text

from .training import ddp

RATE = 1e-4

Step = Callable[[], object]


class _Sleep(torch.autograd.Function):
    """Return the input; sleep in backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, seconds: float) -> torch.Tensor:
        """Keep the time to sleep."""
        ctx.seconds = seconds
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Sleep, as a device does that computes elsewhere."""
        time.sleep(ctx.seconds)
        return gradients[0], None


class _Layer(nn.Linear):
    """A linear layer that sleeps in backward, before its gradient is computed."""

    def __init__(self, width: int, seconds: float) -> None:
        super().__init__(width, width)
        self._seconds = seconds

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Compute the layer."""
        computed = super().forward(values)
        if self._seconds:
            computed = _Sleep.apply(computed, self._seconds)  # type: ignore[no-untyped-call]
        return computed


def model(asked: argparse.Namespace, seconds: float) -> nn.Module:
    """Return the layers, equal on all ranks."""
    torch.manual_seed(1)
    return nn.Sequential(*(_Layer(asked.width, seconds) for _ in range(asked.layers)))


def step(calls: nn.Module, inputs: torch.Tensor, optimizer: Any) -> Step:
    """Return what makes one step of a training."""

    def once() -> None:
        optimizer.zero_grad()
        calls(inputs).square().mean().backward()
        optimizer.step()

    return once


@contextmanager
def wagma_step(
    comm: MPI.Intracomm, layers: nn.Module, inputs: torch.Tensor, bucket: int | None
) -> Iterator[Step]:
    """Let AllreduceSGD average the gradients of the block's steps; collective."""
    inner = torch.optim.SGD(layers.parameters(), lr=RATE)
    algorithm = AllreduceSGD(comm, bucket_bytes=bucket)
    with DistributedOptimizer(inner, algorithm) as optimizer:
        yield step(layers, inputs, optimizer)


@contextmanager
def ddp_step(comm: MPI.Intracomm, layers: nn.Module, inputs: torch.Tensor) -> Iterator[Step]:
    """Let DDP average the gradients of the block's steps; collective."""
    with ddp.wrapped(comm, layers, ()) as calls:
        yield step(calls, inputs, torch.optim.SGD(layers.parameters(), lr=RATE))


def measure(comm: MPI.Intracomm, asked: argparse.Namespace, seconds: float) -> list[float]:
    """Return the milliseconds of a step in one piece, in buckets and with DDP; collective."""
    inputs = torch.randn(
        asked.batch, asked.width, generator=torch.Generator().manual_seed(comm.rank)
    )
    with ExitStack() as block:
        steps = [
            block.enter_context(wagma_step(comm, model(asked, seconds), inputs, None)),
            block.enter_context(wagma_step(comm, model(asked, seconds), inputs, asked.bucket)),
            block.enter_context(ddp_step(comm, model(asked, seconds), inputs)),
        ]
        rows = [[_run(comm, once, asked.steps) for once in steps] for _ in range(asked.runs + 1)]
    return [1e3 * median(column) for column in zip(*rows[1:], strict=True)]  # the first is not one


def _run(comm: MPI.Intracomm, once: Step, steps: int) -> float:
    """Return the seconds of a step on the slowest rank."""
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(steps):
        once()
    return float(comm.allreduce((time.perf_counter() - began) / steps, MPI.MAX))


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="mpiexec -n RANKS python -m wagma.benchmarks.overlap", description=__doc__
    )
    add = parser.add_argument
    add("--layers", default=12, type=integer(1), help="linear layers; 12")
    add("--width", default=1024, type=integer(1), help="inputs and outputs of each; 1024")
    add("--batch", default=32, type=integer(1), help="samples of each rank; 32")
    add("--sleep", default="10ms", type=reader(parse_duration), help="in each backward; 10ms")
    add("--bucket", default="4MiB", type=reader(parse_size), help="bytes of a bucket; 4MiB")
    add("--steps", default=10, type=integer(1), help="steps of each run; 10")
    add("--runs", default=5, type=integer(1), help="runs of each kind; 5")
    return parser.parse_args()


def main() -> None:
    """Print a line without and one with the sleep, on rank 0."""
    asked, comm = arguments(), MPI.COMM_WORLD
    torch.set_num_threads(1)
    if comm.rank == 0:
        print(
            f"{comm.size} ranks, {asked.layers} layers of {asked.width} x {asked.width}, "
            f"{asked.batch} samples on each rank; ms per step, medians of {asked.runs} runs of "
            f"{asked.steps} steps"
        )
        buckets = f"in {size_text(asked.bucket)} buckets"
        print(f"{'sleep in a layer':>16} {'in one piece':>13} {buckets:>17} {'DDP, gloo':>10}")
    for seconds in (0.0, asked.sleep):
        whole, parts, other = measure(comm, asked, seconds)
        if comm.rank == 0:
            sleep = time_text(seconds) if seconds else "none"
            print(f"{sleep:>16} {whole:13.1f} {parts:17.1f} {other:10.1f}", flush=True)


if __name__ == "__main__":
    main()
