"""Times and staleness of K-sync, K-async and their batch forms on real ranks, beside theory.

``mpiexec -n 9 python -m wagma.benchmarks.ksync``: eight learners whose computing is an exponential
sleep, which ends when its gradient is not wanted any more. The forms without a server run on the
learners alone, the others with the last rank as their server.
"""

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
from wagma.launch.values import integer
from wagma.theory.ksync import METHODS, update_time
from wagma.theory.ksync.methods import check_method
from wagma.training.optimizer import DistributedOptimizer
from wagma.units import parse_seconds, plural, time_text

POLL_S = 1e-3  # between two questions whether the gradient is wanted
FORMS = ("serverless", "server")
HEADER = [
    "method",
    "K",
    "theory",
    *FORMS,
    "staleness: theory",
    *FORMS,
    "busy, serverless",
    "server",
]

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


def row(
    method: str, k: int, theory: float, stale: float, found: dict[str, dict[str, float]]
) -> str:
    """Return a line of the table.

    Args:
        method: one of `METHODS`.
        k: gradients of an update.
        theory: seconds of an update.
        stale: mean staleness of theory.
        found: what `measure` returned, by form; a form that the method does not have is left out.
    """

    def cells(figure: str, text: Callable[[float], str]) -> list[str]:
        return [text(found[form][figure]) if form in found else "-" for form in FORMS]

    words = [method, str(k), _milliseconds(theory)]
    words += cells("seconds", lambda took: f"{_milliseconds(took)} ({took / theory:.2f}x)")
    words += [f"{stale:.2f}", *cells("staleness", "{:.2f}".format)]
    words += cells("busy", "{:.1%}".format)
    return f"| {' | '.join(words)} |"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:#.3g}".rstrip(".")


def arguments(comm: MPI.Intracomm) -> argparse.Namespace:
    """Return the command line; end the program where it is wrong for so many ranks."""
    parser = argparse.ArgumentParser(
        prog="mpiexec -n RANKS python -m wagma.benchmarks.ksync", description=__doc__
    )
    parser.add_argument("--mean", default=0.2, type=parse_seconds, help="mean of the sleep; 200ms")
    parser.add_argument("--updates", default=500, type=int, help="updates of each training; 500")
    parser.add_argument(
        "--parameters", default=10_000, type=int, help="parameters of the model; 10000"
    )
    parser.add_argument("--k", default="1,2,4", help="gradients of an update; 1,2,4")
    parser.add_argument("--methods", default=",".join(METHODS), help=",".join(METHODS))
    parser.add_argument("--json", type=Path, help="file for the figures")
    asked = parser.parse_args()
    try:
        asked.methods = [check_method(name) for name in asked.methods.split(",")]
        asked.k = [integer(word, 1) for word in asked.k.split(",")]
        if max(asked.k) >= comm.size:
            raise ValueError(
                f"k is {max(asked.k)}: at most {comm.size - 1} is possible with "
                f"{plural(comm.size, 'rank')}, of which the last is the server; start more ranks, "
                "or pass a smaller --k"
            )
    except ValueError as error:
        if comm.rank == 0:
            parser.error(str(error))
        raise SystemExit(2) from None
    return asked


def main() -> None:
    """Measure each form, and print a table on rank 0."""
    asked = arguments(MPI.COMM_WORLD)
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    learners = world.size - 1
    without = MPI.Intracomm(world.Split(0 if world.rank < learners else 1))
    rows = []
    if world.rank == 0:
        print(f"{learners} learners, sleep {time_text(asked.mean)} on average; times in ms")
        print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for method in asked.methods:
        for k in asked.k:
            theory = update_time(method, stats.expon(scale=asked.mean), learners, k).mean
            found: dict[str, dict[str, float]] = {}
            for form, make in forms(method, k).items():
                comm = world if form == "server" else without
                if form == "server" or world.rank < learners:
                    its = measure(comm, make, asked.updates, asked.mean, asked.parameters)
                    found |= {} if its is None else {form: its}
                world.Barrier()
            if world.rank == 0:
                known = {"method": method, "k": k, "theory": theory}
                rows += [{"form": form, **known, **its} for form, its in found.items()]
                print(row(method, k, theory, staleness(method, learners, k), found), flush=True)
    if asked.json and world.rank == 0:
        write_file(asked.json, json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
