"""The kinds of benchmarks of collectives: what they are called, and their defaults."""

from dataclasses import dataclass
from typing import Any

from .gpus import GPUS

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Kind:
    """A kind, whose defaults are OSU's unless it says otherwise.

    `smallest` skips what is smaller than an element; `ways` is in how many ways it calls wagma,
    where it posts calls, and 1 elsewhere.
    """

    title: str
    summary: str
    smallest: int = 1
    largest: int = MIB
    iterations: int = 1000
    iterations_large: int = 100
    warmup: int = 200
    warmup_large: int = 10
    quorum: int | str = "all"
    arrival: str = "together"
    ways: int = 1


FEW: dict[str, Any] = {"iterations": 100, "iterations_large": 100, "warmup": 10, "warmup_large": 10}

KINDS = {
    "allreduce": Kind("Allreduce Latency", "measure the latency of an allreduce of all ranks"),
    "group-allreduce": Kind(
        "Group Allreduce Latency",
        "measure the latency of a wait-avoiding allreduce in groups",
        quorum=1,
    ),
    "iallreduce": Kind(
        "Non-blocking Allreduce Latency", "measure how much of an allreduce computing hides", ways=2
    ),
    "overlap": Kind(
        "Allreduce Overlap",
        "measure what ranks pay for one that posts its allreduce late",
        *(MIB, MIB),
        **FEW,
        quorum=1,
        ways=3,
    ),
    "skew": Kind(
        "Allreduce Skew",
        "measure the latency while ranks arrive further and further apart",
        *(64 * KIB, 64 * KIB),
        **FEW,
        quorum=1,
        arrival="one-late",
    ),
    "bandwidth": Kind(
        "Allreduce Bandwidth",
        "measure the bandwidth of large arrays, as nccl-tests computes it",
        *(64 * KIB, 16 * MIB),
        **FEW,
    ),
}
NONBLOCKING = tuple(name for name, kind in KINDS.items() if kind.ways > 1)


def title(kind: str, version: str, buffer: str = "numpy") -> str:
    """Return a title such as "# wagma Allreduce Latency Test v0.1.0", in the form of OSU's.

    GPUs are named as OSU names them.
    """
    gpu = "-CUDA" if buffer in GPUS else ""
    return f"# wagma{gpu} {KINDS[kind].title} Test v{version}"
