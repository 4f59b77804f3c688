"""What a step of AllreduceSGD costs one process beside plain torch's, and its copies beside memcpy.

``python -m wagma.benchmarks.step_cost [SIZE ...]``: for models of such sizes, as 4KiB or 1MiB, in
one parameter and in 40, float32, medians of five steps.
"""

import ctypes
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from mpi4py import MPI

from wagma.algorithms import AllreduceSGD
from wagma.training.flat import FlatParameters, Layout
from wagma.training.flat_gradients import FlatGradients
from wagma.training.optimizer import DistributedOptimizer
from wagma.units import parse_size, size_text

SIZES = ("1MiB", "16MiB", "100MiB")
REPEATS = 5
PARTS = (1, 40)  # parameters of a model


def milliseconds(call: Callable[[], object], prepare: Callable[[], object]) -> float:
    """Return the median time of `call`, each after `prepare`; the first one does not count."""
    times = []
    for _ in range(REPEATS + 1):
        prepare()
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return 1e3 * median(times[1:])


def model(nbytes: int, parts: int) -> list[torch.nn.Parameter]:
    """Return parameters of so many bytes in all."""
    return [torch.nn.Parameter(torch.zeros(nbytes // 4 // parts)) for _ in range(parts)]


def backward(parameters: list[torch.nn.Parameter]) -> None:
    """Give the parameters new gradients, as a backward pass does."""
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)


def copies(parameters: list[torch.nn.Parameter]) -> tuple[float, float]:
    """Return the time of both copies of the gradients, and of two memcpys of as many bytes."""
    flat = FlatParameters(parameters, Layout.of(parameters))
    memory = torch.empty(FlatGradients.size_for(flat.layout))
    gradients = FlatGradients(parameters, flat.layout, memory)

    def both() -> None:
        gradients.gather(None)
        gradients.hand_out()

    ours = milliseconds(both, lambda: backward(parameters))
    source, between, target = (torch.ones_like(flat.flat) for _ in range(3))

    def memcpy() -> None:
        ctypes.memmove(between.data_ptr(), source.data_ptr(), source.nbytes)
        ctypes.memmove(target.data_ptr(), between.data_ptr(), source.nbytes)

    return ours, milliseconds(memcpy, lambda: source.fill_(2))


def steps(nbytes: int, parts: int) -> tuple[float, float]:
    """Return the time of a step with AllreduceSGD on one rank, and of one of plain torch."""
    parameters = model(nbytes, parts)
    inner = torch.optim.SGD(parameters, lr=0.1)
    plain = milliseconds(inner.step, lambda: backward(parameters))
    with DistributedOptimizer(inner, AllreduceSGD(MPI.COMM_SELF)) as optimizer:
        return milliseconds(optimizer.step, lambda: backward(parameters)), plain


def main() -> None:
    """Print a line for each model."""
    try:
        sizes = [parse_size(word) for word in sys.argv[1:] or SIZES]
        if min(sizes) < (least := 4 * max(PARTS)):
            raise ValueError(f"{min(sizes)} B is too small: at least {least} B are needed")
    except ValueError as error:
        sys.exit(f"python -m wagma.benchmarks.step_cost: {error}")
    torch.set_num_threads(1)
    print("    size  parameters  copies ms  2 memcpy ms  ratio  step ms  plain ms")
    for nbytes in sizes:
        for parts in PARTS:
            ours, memcpy = copies(model(nbytes, parts))
            step, plain = steps(nbytes, parts)
            print(
                f"{size_text(nbytes):>8} {parts:11} {ours:10.2f} {memcpy:12.2f}"
                f" {ours / memcpy:6.2f} {step:8.2f} {plain:9.2f}"
            )


if __name__ == "__main__":
    main()
