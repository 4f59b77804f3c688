"""The title line of a benchmark, in the form of OSU Micro-Benchmarks 7. Pure."""

from __future__ import annotations

__all__ = ["title"]

_NAMES = {
    "allreduce": "Allreduce Latency",
    "group-allreduce": "Group Allreduce Latency",
    "iallreduce": "Non-blocking Allreduce Latency",
    "overlap": "Allreduce Overlap",
    "skew": "Allreduce Skew",
    "bandwidth": "Allreduce Bandwidth",
}


def title(kind: str, version: str, buffer: str = "numpy") -> str:
    """Such as "# wagma Allreduce Latency Test v0.1.0"; GPUs are named as OSU names them."""
    gpu = "-CUDA" if buffer == "cupy" else ""
    return f"# wagma{gpu} {_NAMES[kind]} Test v{version}"
