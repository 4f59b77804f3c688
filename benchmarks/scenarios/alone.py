"""What is measured without MPI, whose threads and memory would be mixed up with wagma's.

The ranks are forked processes over a segment that was made before.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from wagma.collectives import Handle, Segment
from wagma.memory import shared_memory_of

from ..checking import Checked, taken
from ..contributions import Contributions
from ..memory import arrays
from ..settings import Settings

LIVENESS_S = 120.0
GRACE_S = 0.1  # long enough for nobody to be late

Body = Callable[[int, Segment], dict[str, Any]]


def _forked(options: dict[str, Any], body: Body) -> list[dict[str, Any]]:
    """Return what `body(rank, segment)` returned on each rank; RuntimeError if one failed."""
    segment = Segment.create(options)
    context = multiprocessing.get_context("fork")

    def run(rank: int, pipe: Connection) -> None:
        try:
            pipe.send(body(rank, segment))
        except BaseException as error:
            pipe.send(f"rank {rank}: {type(error).__name__}: {error}")

    processes, pipes = [], []
    try:
        for rank in range(options["size"]):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=run, args=(rank, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        reports = []
        for rank, pipe in enumerate(pipes):
            if not pipe.poll(LIVENESS_S):
                raise RuntimeError(f"rank {rank} said nothing for {LIVENESS_S:g} s")
            reports.append(pipe.recv())
    finally:
        for process in processes:
            process.join(1)
            process.kill()
    if failures := [report for report in reports if isinstance(report, str)]:
        raise RuntimeError("; ".join(failures))
    return reports


def _options(bytes_: int, size: int, quorum: int, **others: Any) -> dict[str, Any]:
    return {"size": size, "count": bytes_ // 4, "quorum": quorum, "average": 0, **others}


def _tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def passive(seconds: float) -> dict[str, Any]:
    """Threads and CPU time of rank 0 while it sleeps between two calls and three others call on."""
    step = 0.005
    calls = round(seconds / step)

    def body(rank: int, segment: Segment) -> dict[str, Any]:
        before = _tasks()
        contributions = Contributions(segment_count)
        checked = Checked(rank, contributions)
        x = np.empty(segment_count, np.float32)
        contributions.write(x, rank, -1)
        report = {}
        with Handle(segment, rank, x) as coll:
            for version in range(calls):
                contributions.write(x, rank, version)
                outcome = coll.allreduce(x)
                checked.check("passive", x, taken(outcome, rank), outcome.late)
                if rank == 0 and version == 0:
                    cpu = time.process_time_ns()
                    time.sleep(seconds)
                    report["cpu_ns"] = time.process_time_ns() - cpu
                    report["threads"] = _tasks() - before
                elif rank != 0:
                    time.sleep(step)
        return {**report, **checked.counts()}

    segment_count = 1 << 18
    options = _options(4 * segment_count, 4, quorum=1, window=2 * calls)
    reports = _forked(options, body)
    return {"seconds": seconds, "calls_of_others": calls, "by_rank": reports}


def memory_formula(bytes_: int, quorum_all: bool) -> int:
    """Return the bytes of arrays per rank, without the few words of the protocol."""
    settings = Settings("allreduce", (bytes_,), quorum="all" if quorum_all else 1)
    in_segment, _ = arrays(settings, ranks=2)  # as of more ranks
    return in_segment * shared_memory_of(bytes_)


def memory(bytes_: int, size: int, quorum_all: bool) -> dict[str, Any]:
    """Measure the segment per rank after some calls, as the engine and the system count it."""

    def body(rank: int, segment: Segment) -> dict[str, Any]:
        contributions = Contributions(bytes_ // 4, terms=size + 1)
        checked = Checked(rank, contributions)
        private = np.empty(bytes_ // 4, np.float32)
        contributions.write(private, rank, -1)
        before = _shared_resident()
        with Handle(segment, rank, private) as coll:
            x = coll.empty()
            for version in range(10):
                contributions.write(x, rank, version)
                outcome = coll.allreduce(x)
                checked.check("memory", x, taken(outcome, rank), outcome.late)
            return {
                "segment_bytes": coll.stats().segment_bytes,
                "allocated_bytes": _allocated(),
                "resident_bytes": _shared_resident() - before,
                **checked.counts(),
            }

    quorum = size if quorum_all else 1
    reports = _forked(_options(bytes_, size, quorum, grace=GRACE_S), body)
    formula = memory_formula(bytes_, quorum_all)
    return {"bytes": bytes_, "ranks": size, "formula": formula, "by_rank": reports}


def _shared_resident() -> int:
    """Return the resident bytes of shared memory of this process: written, or read of others."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssShmem")


def _allocated() -> int:
    """Bytes that the file of the segment, which this process holds open, takes in /dev/shm."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # the descriptor that listed the folder
            continue
        if target.startswith(("/dev/shm/wagma-", "/dev/shm/#")):  # named, or not
            return entry.stat().st_blocks * 512
    raise RuntimeError("no open file in /dev/shm/")


def binding(blocks: int, calls: int) -> dict[str, Any]:
    """Times in ns of a call with one rank and 4 bytes: the binding and the engine's fixed costs."""

    def body(rank: int, segment: Segment) -> dict[str, Any]:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        x = np.ones(1, np.float32)
        samples = []
        with Handle(segment, rank, x) as coll:
            call = coll.allreduce
            for _ in range(blocks):
                began = time.perf_counter_ns()
                for _ in range(calls):
                    call(x)
                samples.append(round((time.perf_counter_ns() - began) / calls))
        wrong = int(x[0] != 1)  # the sum of one rank
        first = f"binding: {x[0]} instead of 1" if wrong else None
        return {
            "samples_ns": samples,
            "results": blocks * calls,
            "wrong": wrong,
            "late": 0,
            "first_wrong": first,
        }

    return {"by_rank": _forked(_options(4, 1, quorum=1), body)}
