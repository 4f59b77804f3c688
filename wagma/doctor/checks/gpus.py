"""GPUs, and what else on this machine can use them."""

from __future__ import annotations

from collections.abc import Iterator

from wagma.doctor.checks.software import holders
from wagma.doctor.facts import Facts, Finding, Gpu, Level, RankFacts, which_ranks

__all__ = ["gpus"]

HOST_ONLY = "wagma works on host arrays for now"


def gpus(facts: Facts) -> Iterator[Finding]:
    """What there is; none of it is used by wagma."""
    for text, ranks in holders(facts, _describe).items():
        gpu = ranks[0].gpu
        if not gpu.driver:
            yield Finding("GPU", Level.NOTE, f"{text}; {HOST_ONLY}")
            continue
        on = f" on {which_ranks(ranks)}" if len(ranks) < len(facts.ranks) else ""
        yield Finding(
            "GPU",
            Level.NOTE,
            f"{text}{on}; {HOST_ONLY}",
            "copy what is averaged to the host before a call, and the result back",
        )
        if gpu.error:
            yield Finding(
                "GPU",
                Level.WARNING,
                f"the driver is there, but CUDA does not work on {which_ranks(ranks)}: {gpu.error}",
                "see nvidia-smi; in a container docker run --gpus all",
            )


def _describe(rank: RankFacts) -> str:
    gpu = rank.gpu
    if not gpu.driver:
        return "no NVIDIA driver"
    count = "unknown number of" if gpu.devices is None else str(gpu.devices)
    counted = f"{count} GPU{'' if gpu.devices == 1 else 's'}"
    libraries = [_torch(gpu), f"CuPy {gpu.cupy}" if gpu.cupy else "", _mpi(rank)]
    return ", ".join([f"{counted}, driver {gpu.driver}", *filter(None, libraries)])


def _torch(gpu: Gpu) -> str:
    if not gpu.torch:
        return ""
    them = "it" if gpu.devices == 1 else "them"
    use = {True: f" uses {them}", False: f" does not use {them}", None: ""}[gpu.torch_cuda]
    return f"PyTorch {gpu.torch}{use}"


def _mpi(rank: RankFacts) -> str:
    """GPU-aware: whether MPI takes pointers to GPU memory."""
    if not rank.mpi.family:
        return ""
    asked = rank.environment.get("MPICH_GPU_SUPPORT_ENABLED")
    if rank.mpi.cuda is None:
        return f"MPICH_GPU_SUPPORT_ENABLED={asked}" if asked else "MPI does not say if GPU-aware"
    return f"{rank.mpi.family} is {'' if rank.mpi.cuda else 'not '}GPU-aware"
