"""Times and staleness of K-sync, K-async and their batch forms on real ranks, beside theory.

``mpiexec -n 9 python -m wagma.benchmarks.ksync``: eight learners whose computing is an exponential
sleep, which ends when its gradient is not wanted any more. The forms without a server run on the
learners alone, the others with the last rank as their server.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from scipy import stats

from wagma.algorithms import Algorithm, KAsync, KSync, ParameterServerSGD
from wagma.launch.files import write_file
from wagma.theory.ksync import METHODS, update_time
from wagma.training.optimizer import DistributedOptimizer
from wagma.units import parse_seconds, time_text

POLL_S = 1e-3  # between two questions whether the gradient is wanted
HEADER = ("form", "method", "K", "per update", "theory", "ratio", "staleness", "theory", "busy")

Make = Callable[[MPI.Intracomm], Algorithm]


def forms(method: str, k: int) -> dict[str, Make]:
    """Return what makes the algorithm, with and without a server."""
    made: dict[str, Make] = {}
    if method == "k-sync":
        made["serverless"] = lambda comm: KSync(comm, k)
    if method == "k-async":
        made["serverless"] = lambda comm: KAsync(comm, k)
    name: Any = method
    made["server"] = lambda comm: ParameterServerSGD(comm, name, k=k)
    return made


def staleness(method: str, learners: int, k: int) -> float:
    """Return the mean staleness of theory."""
    return {"k-async": learners / k - 1, "k-batch-async": (learners - 1) / k}.get(method, 0.0)


def measure(
    comm: MPI.Intracomm, make: Make, updates: int, mean: float, parameters: int
) -> dict[str, float] | None:
    """Train, and return seconds per update, mean staleness and busy share; collective.

    Returns:
        Means over the learners, on rank 0; None on the others.
    """
    weights = torch.nn.Parameter(torch.zeros(parameters))
    gradient = torch.full((parameters,), 1e-3)
    rng = np.random.default_rng([1, comm.rank])
    computed = 0.0
    algorithm = make(comm)
    with DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), algorithm) as opt:
        comm.Barrier()
        began = time.perf_counter()
        while opt.version < updates:
            if not opt.pending:
                start = time.perf_counter()
                end = start + rng.exponential(mean)
                while (left := end - time.perf_counter()) > 0 and not opt.should_stop():
                    time.sleep(min(left, POLL_S))
                computed += time.perf_counter() - start
                weights.grad = gradient.clone()
            opt.step()
        took = time.perf_counter() - began
        found = opt.stats()
        versions = opt.version
        weights.grad = None
        opt.synchronize()
    learns = not getattr(algorithm, "is_server", False)
    own = (took / versions, found["staleness_mean"], computed / took) if learns else None
    every = comm.gather(own)
    if every is None:
        return None
    means = np.mean([one for one in every if one is not None], axis=0).tolist()
    return dict(zip(("seconds", "staleness", "busy"), means, strict=True))


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="mpiexec -n RANKS python -m wagma.benchmarks.ksync", description=__doc__
    )
    parser.add_argument("--mean", default=0.2, type=parse_seconds, help="of the sleep; 200ms")
    parser.add_argument("--updates", default=500, type=int, help="of each training; 500")
    parser.add_argument("--parameters", default=10_000, type=int, help="of the model; 10000")
    parser.add_argument("--k", default="1,2,4", help="gradients of an update; 1,2,4")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"{','.join(METHODS)}")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args()


def main() -> None:
    """Measure each form, and print a table on rank 0."""
    asked = arguments()
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    learners = world.size - 1
    without = MPI.Intracomm(world.Split(0 if world.rank < learners else 1))
    rows = []
    if world.rank == 0:
        print(f"{learners} learners, sleep {time_text(asked.mean)} on average")
        print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    for method in asked.methods.split(","):
        for k in map(int, asked.k.split(",")):
            theory = update_time(method, stats.expon(scale=asked.mean), learners, k).mean
            for form, make in forms(method, k).items():
                comm = world if form == "server" else without
                found = None
                if form == "server" or world.rank < learners:
                    found = measure(comm, make, asked.updates, asked.mean, asked.parameters)
                world.Barrier()
                if found is None or world.rank:
                    continue
                row = {"form": form, "method": method, "k": k, "theory": theory, **found}
                rows.append(row)
                print(
                    f"| {form} | {method} | {k} | {time_text(found['seconds'])} | "
                    f"{time_text(theory)} | {found['seconds'] / theory:.2f} | "
                    f"{found['staleness']:.2f} | {staleness(method, learners, k):.2f} | "
                    f"{found['busy']:.0%} |",
                    flush=True,
                )
    if asked.json and world.rank == 0:
        write_file(asked.json, json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
