"""How fast collectives are on one GPU, beside copies of as many bytes in its memory.

``python -m wagma.benchmarks.gpu`` starts 4 ranks, which meet without MPI and share the first GPU.
In a minute it prints a table, each row with its bound or goal: the bandwidth of sums,
an allreduce of large arrays out of place and in place, small ones while a rank comes late, and what
a call and a handle cost the host. Clocks stop when the caller's stream has the result.
"""

import argparse
import json
import mmap
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from wagma.collectives import GroupAllreduce, Outcome, SyncAllreduce
from wagma.collectives._engine import Device
from wagma.collectives.errors import WagmaError
from wagma.doctor.software import mps
from wagma.launch.agreement import InputError
from wagma.launch.environment import mpi_launcher
from wagma.launch.files import write_file
from wagma.launch.options import integer, reader
from wagma.launch.values import size
from wagma.units import parse_duration

from . import _loop
from .gpu_table import Asked, Times, collectives, sums, table
from .gpus import GPUS, Gpu

PATIENCE_S = 120.0  # for a rank that does not come
SMALL = 4096  # bytes of the array that is posted


# ---- on each rank --------------------------------------------------------------------------------


class ResultError(Exception):
    """A rank has not got what a call should give, so that times mean nothing."""


class Rank:
    """One rank and its GPU; all ranks do the same in the same order."""

    def __init__(self, rank: int, asked: Asked, meeting: _loop.Meeting) -> None:
        self.rank = rank
        self.asked = asked
        self.gpu = GPUS[asked.buffer](0)  # the same for all
        self._meeting = meeting

    def array(self, nbytes: int) -> Any:
        """Return an array of float32 on the GPU that holds the rank."""
        return self.gpu.array(np.full(nbytes // 4, self.rank, np.float32))

    def timed(self, call: Callable[[], object], late: float = 0.0) -> tuple[int, int]:
        """Return when a call began that all ranks make at once, and when the stream had it done."""
        self.gpu.finish()
        self._meeting.wait(round(1e9 * late))
        began = self._meeting.now()
        call()
        self.gpu.finish()
        return began, self._meeting.now()

    def group(self, x: Any, grace: float) -> GroupAllreduce:
        """Return a collective in which all ranks are one group."""
        return GroupAllreduce(None, x, group_size=self.asked.ranks, grace=grace)

    def large(self) -> dict[str, Times]:
        """Return the times of allreduces of large arrays, out of place and in place."""
        asked, gpu, x = self.asked, self.gpu, self.array(self.asked.size)
        rounds = range(asked.rounds + 1)  # the first one does not count

        def look(outcome: Outcome) -> None:
            if outcome.late:
                raise ResultError(
                    f"rank {self.rank} came {PATIENCE_S:g} s late to call {outcome.version} of "
                    "large arrays: leave the machine to this benchmark, or give a smaller --size"
                )
            gpu.taken(outcome.result)

        found: dict[str, Times] = {"out of place": [], "in place": []}
        with self.group(x, PATIENCE_S) as coll:
            for _ in rounds:
                contribution = gpu.taken(coll.next_contribution())
                gpu.copy(contribution, x)
                found["out of place"].append(self.timed(lambda: look(coll.allreduce(contribution))))  # noqa: B023
            found["in place"] = [self.timed(lambda: coll.allreduce(x)) for _ in rounds]
            host = gpu.pinned(np.zeros(asked.size // 4, np.float32))
            gpu.to_host(host, x)
            mean = (asked.ranks - 1) / 2
            wrong = host[host != mean]
            if wrong.size:
                raise ResultError(
                    f"rank {self.rank}, {2 * len(rounds)} calls of large arrays: {wrong.size} of "
                    f"{host.size} elements are not {mean:g}, the mean of the ranks; the first is "
                    f"{wrong[0]:g}: run make test-device, which tests each part alone"
                )
        return {name: times[1:] for name, times in found.items()}

    def small(self) -> dict[int, Times]:
        """Return the times of allreduces of each size while the last rank is late."""
        asked = self.asked
        late = asked.late if self.rank == asked.ranks - 1 else 0.0
        found = {}
        for nbytes in asked.sizes:
            x = self.array(nbytes)
            with self.group(x, asked.grace) as coll:
                self.timed(lambda: coll.allreduce(x))  # noqa: B023
                found[nbytes] = [
                    self.timed(lambda: coll.allreduce(x), late)  # noqa: B023
                    for _ in range(asked.rounds)
                ]
        return found

    def host(self) -> dict[str, Any]:
        """Return ns of the host in posting a call and in all of it, and while it has no call."""
        x, posting = self.array(SMALL), []
        with SyncAllreduce(None, x) as coll:
            for _ in range(self.asked.calls):
                self.gpu.finish()
                self._meeting.wait()
                began = time.perf_counter_ns()
                request = coll.iallreduce(x)
                posting.append(time.perf_counter_ns() - began)
                request.wait()
            began = time.thread_time_ns()
            for _ in range(self.asked.calls):
                coll.allreduce(x)
            calling = time.thread_time_ns() - began
            idle = self.idle()
        return {"posting": posting, "calling": calling, "idle": idle}

    def idle(self) -> int:
        """Return ns of the host while no rank has a call."""
        self.gpu.finish()
        self._meeting.meet()
        began = time.process_time_ns()
        time.sleep(self.asked.idle)
        took = time.process_time_ns() - began
        self._meeting.meet()
        return took


def on_rank(rank: int, asked: Asked, path: str, job: str) -> dict[str, Any]:
    """Return what a rank measured; in a process of its own."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(asked.ranks), "WAGMA_JOB": job}
    with Path(path).open("r+b") as file:
        memory = mmap.mmap(file.fileno(), _loop.words_of(asked.ranks))
    crowded = len(os.sched_getaffinity(0)) < asked.ranks
    meeting = _loop.Meeting(memory, rank, asked.ranks, crowded=crowded, timeout=PATIENCE_S)
    try:
        one = Rank(rank, asked, meeting)
        before = one.idle()
        found = {"large": one.large(), "small": one.small(), "host": one.host()}
        return {**found, "idle before": before}
    finally:
        meeting.leave()


@contextmanager
def meeting_place(ranks: int) -> Iterator[str]:
    """Yield the path of memory in which ranks meet."""
    with tempfile.NamedTemporaryFile(prefix="wagma-gpu-", dir="/dev/shm") as file:
        file.truncate(_loop.words_of(ranks))
        yield file.name


def on_ranks(asked: Asked) -> list[dict[str, Any]]:
    """Return what each rank measured."""
    job = str(uuid.uuid4())
    spawn = get_context("spawn")  # CUDA cannot be used in a forked process
    with (
        meeting_place(asked.ranks) as path,
        ProcessPoolExecutor(asked.ranks, mp_context=spawn) as pool,
    ):
        ranks = [pool.submit(on_rank, rank, asked, path, job) for rank in range(asked.ranks)]
        return _results(ranks)


def _results(ranks: list[Future[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the results; raise the error of the rank that failed, and not of those it left."""
    errors = [error for one in ranks if (error := one.exception()) is not None]
    for error in errors:
        if not isinstance(error, _loop.PeerLeftError):
            raise error
    return [one.result() for one in ranks]


# ---- the command ---------------------------------------------------------------------------------


def gpu_of(buffer: str | None) -> Gpu:
    """Return the first GPU, by this library or by the first one that works.

    Raises:
        InputError: none does.
    """
    errors = []
    for name in GPUS if buffer is None else (buffer,):
        try:
            return GPUS[name](0)
        except InputError as error:
            errors.append(str(error))
    raise InputError("; ".join(errors))


def arguments() -> tuple[argparse.Namespace, Gpu]:
    """Return the command line and the GPU; end the program where something is missing."""
    parser = argparse.ArgumentParser(prog="python -m wagma.benchmarks.gpu", description=__doc__)
    add = parser.add_argument
    add(
        "--buffer", choices=tuple(GPUS), help="library of the arrays; default: the first that works"
    )
    add("--ranks", default=4, type=integer(2), help="ranks; 4")
    add("--sums", default=64 << 20, type=reader(size), help="bytes of the arrays of a sum; 64MiB")
    add("--size", default=100_000_000, type=reader(size), help="bytes of large arrays; 100000000")
    add("--sizes", default="1KiB,32KiB,1MiB", help="sizes of small arrays; 1KiB,32KiB,1MiB")
    add("--late", default=0.3, type=reader(parse_duration), help="how late a rank is; 300ms")
    add("--grace", default=1e-3, type=reader(parse_duration), help="of these calls; 1ms")
    add("--rounds", default=7, type=integer(1), help="calls of each kind; 7")
    add("--calls", default=500, type=integer(1), help="calls whose cost is measured; 500")
    add("--idle", default=1.0, type=reader(parse_duration), help="time between two calls; 1s")
    add("--json", type=Path, help="file for the table")
    asked = parser.parse_args()
    try:
        asked.sizes = tuple(size(word) for word in asked.sizes.split(","))
        if one := mpi_launcher(os.environ):
            raise ValueError(f"{one.name} started it: start it alone, it starts ranks itself")
        return asked, gpu_of(asked.buffer)
    except (InputError, ValueError) as error:
        parser.error(str(error))


def main() -> None:
    """Measure everything and print the table."""
    given, gpu = arguments()
    buffer = gpu.buffer
    names = [field.name for field in fields(Asked)]
    asked = Asked(**{**{name: getattr(given, name) for name in names}, "buffer": buffer})
    facts = {**gpu.facts(), "ranks": asked.ranks, "simulated": gpu.simulated}
    if not gpu.simulated:
        facts["MPS"] = {True: "on", False: "off", None: "unknown"}[mps()]
    for name, value in facts.items():
        print(f"# {name}: {value}")
    if gpu.simulated:
        print("# SIMULATED: these figures say nothing of a GPU")
    sys.stdout.flush()
    try:
        copied, rows = sums(asked, Device(gpu.index))
        rows += collectives(asked, copied, on_ranks(asked))
    except (WagmaError, BrokenExecutor, OSError, ResultError, MemoryError) as error:
        sys.exit(f"python -m wagma.benchmarks.gpu: {type(error).__name__}: {error}")
    print(table(rows))
    if given.json:
        report = {**facts, "rows": [asdict(row) for row in rows]}
        write_file(given.json, json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
