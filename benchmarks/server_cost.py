"""What a gradient costs with a parameter server, beside moving it over this MPI and one sum.

``mpiexec -n 4 python -m wagma.benchmarks.server_cost [ELEMENTS]``: learners without computing push
gradients of so many float32 numbers, 25,600,000 by default, to one server; medians of five runs.
"""

import sys
from statistics import median
from time import perf_counter

import numpy as np
import torch
from mpi4py import MPI

from wagma.algorithms import ParameterServerSGD
from wagma.training.optimizer import DistributedOptimizer

RUNS, GRADIENTS = 5, 12


def moved(comm: MPI.Intracomm, count: int) -> float:
    """Return the seconds in which a gradient goes to the last rank and parameters come back."""
    array, server = np.ones(count, np.float32), comm.size - 1
    comm.Barrier()
    began = perf_counter()
    if comm.rank == 0:
        comm.Send(array, server)
        comm.Recv(array, server)
    elif comm.rank == server:
        comm.Recv(array, 0)
        comm.Send(array, 0)
    took = perf_counter() - began
    return float(comm.bcast(took, 0))


def added(comm: MPI.Intracomm, count: int) -> float:
    """Return the seconds of a sum on the last rank."""
    first, second = np.ones(count, np.float32), np.ones(count, np.float32)
    comm.Barrier()
    began = perf_counter()
    if comm.rank == comm.size - 1:
        first += second
    return float(comm.bcast(perf_counter() - began, comm.size - 1))


def pushed(comm: MPI.Intracomm, count: int) -> float:
    """Return the seconds of a gradient with the server, from its push to the new parameters."""
    weights = torch.nn.Parameter(torch.zeros(count))
    gradient = torch.ones(count)
    algorithm = ParameterServerSGD(comm, "k-batch-async", k=1)
    with DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), algorithm) as opt:
        comm.Barrier()
        began = perf_counter()
        while opt.version < GRADIENTS:
            if not opt.pending:
                weights.grad = gradient
            opt.step()
        took = perf_counter() - began
        versions = opt.version
        weights.grad = None
        opt.synchronize()
    return float(comm.bcast(took / versions, comm.size - 1))


def main() -> None:
    """Print the medians on rank 0."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 25_600_000
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    rows = [(moved(comm, count), added(comm, count), pushed(comm, count)) for _ in range(RUNS)]
    if comm.rank == 0:
        move, add, push = (1e3 * median(column) for column in zip(*rows, strict=True))
        ratio = median(push / (move + add) for move, add, push in rows)
        print(f"moving 2 x {4 * count} B {move:.1f} ms, a sum {add:.1f} ms")
        print(f"a gradient {push:.1f} ms, {ratio:.2f}x of both")


if __name__ == "__main__":
    main()
