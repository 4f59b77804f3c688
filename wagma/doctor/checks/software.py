"""The engine, versions that have to be the same, what the environment sets, and GPUs."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches

from wagma.doctor.facts import (
    Facts,
    Finding,
    Gpu,
    RankFacts,
    by_node,
    note,
    ok,
    problem,
    warning,
    which_ranks,
)

HOST_ONLY = "wagma works on host arrays"
COPY = "copy what is averaged to the host before a call, and the result back"


def holders(facts: Facts, value: Callable[[RankFacts], str]) -> dict[str, list[RankFacts]]:
    """Return the ranks that have each value."""
    found: dict[str, list[RankFacts]] = {}
    for rank in facts.ranks:
        found.setdefault(value(rank), []).append(rank)
    return found


def _told(found: dict[str, list[RankFacts]]) -> str:
    return "; ".join(f"{value} on {which_ranks(ranks)}" for value, ranks in found.items())


def engine(facts: Facts) -> Iterator[Finding]:
    """Report whether the extension can be imported."""
    for error, ranks in holders(facts, lambda rank: rank.engine.error).items():
        if error:
            yield problem(
                "engine",
                f"wagma.collectives cannot be imported on {which_ranks(ranks)}: {error}",
                "build it again, in the root of the sources: "
                "python -m pip install --force-reinstall .",
            )
        elif not any("engine" in rank.failed for rank in ranks):
            levels = sorted({rank.engine.simd for rank in ranks})
            yield ok("engine", f"C interface {ranks[0].engine.abi}, kernels {', '.join(levels)}")


def versions(facts: Facts) -> Iterator[Finding]:
    """Report ranks with different software, which work together by luck at best."""
    different = False
    for name in facts.ranks[0].versions:
        found = _versions_of(facts, name)
        if len(found) > 1:
            different = True
            yield _different(name, found)
    loaded = holders(facts, lambda rank: f"{rank.mpi.family} {rank.mpi.version}".strip() or "none")
    if len(loaded) > 1:
        different = True
        yield _different("MPI", loaded)
    if len(facts.ranks) > 1 and not different:
        yield ok("versions", "the same on all ranks")


def _versions_of(facts: Facts, package: str) -> dict[str, list[RankFacts]]:
    return holders(facts, lambda rank: rank.versions.get(package, "unknown"))


def _different(name: str, found: dict[str, list[RankFacts]]) -> Finding:
    return problem(
        "versions",
        f"{name} differs between ranks: {_told(found)}",
        "start all ranks with the same Python environment: the same path on every host, and no "
        "other one first on PATH",
    )


def environment(facts: Facts) -> Iterator[Finding]:
    """Report variables of wagma that are unknown, differ between ranks, or have wrong values."""
    names = sorted({name for rank in facts.ranks for name in rank.environment})
    for name in names:
        if name.startswith("WAGMA_"):
            yield from _variable(facts, name)
    for error, ranks in holders(facts, lambda rank: rank.engine.options_error).items():
        if error:
            yield problem(
                "environment",
                f"{which_ranks(ranks)}: {error}",
                "unset the variable, or correct it: creating a collective fails with it",
            )


def _variable(facts: Facts, name: str) -> Iterator[Finding]:
    known = facts.ranks[0].engine
    if not known.options:  # the engine is missing, and with it the list
        return
    found = holders(facts, lambda rank: rank.environment.get(name, "(not set)"))
    if name in known.options and name not in known.own and len(found) > 1:
        yield problem(
            "environment",
            f"{name} differs between ranks: {_told(found)}: creating a collective fails",
            "let the launcher pass it to all ranks: mpiexec -genv (MPICH), -x (Open MPI), "
            "srun --export=ALL",
        )
    elif name in known.options:
        if not any(name in rank.engine.options_error for rank in facts.ranks):  # told as a problem
            yield note(
                "environment",
                f"{name}={', '.join(found)} overrides the option {known.options[name]}",
            )
    elif name == "WAGMA_SIMD":
        yield from _simd(facts)
    elif name == "WAGMA_CMA" and not set(found) <= {"0", "1", ""}:
        yield warning(
            "environment",
            f"WAGMA_CMA={', '.join(found)} is not followed: it is 0 or 1",
            "0 keeps ranks from reading private arrays from each other's memory; or unset it",
        )
    elif name in known.variables:
        yield note("environment", f"{name} sets {known.variables[name]}")
    else:
        names = [*known.options, *known.variables]
        # Without what all of them begin with, which would make them all alike.
        ends = {other.removeprefix("WAGMA_"): other for other in names}
        likely = get_close_matches(name.removeprefix("WAGMA_"), ends, n=1, cutoff=0.5)
        yield warning(
            "environment",
            f"{name} is no variable of wagma: it is ignored",
            f"{ends[likely[0]]} is one: is that meant?" if likely else "unset it",
        )


def _simd(facts: Facts) -> Iterator[Finding]:
    ignored = [
        rank
        for rank in facts.ranks
        if (rank.environment.get("WAGMA_SIMD") or rank.engine.simd) != rank.engine.simd
    ]
    if ignored:
        yield warning(
            "environment",
            f"WAGMA_SIMD={ignored[0].environment['WAGMA_SIMD']} is not followed on "
            f"{which_ranks(ignored)}: the kernels are {ignored[0].engine.simd}",
            "use scalar, avx2 or avx512, as far as the processor has it; or unset it",
        )
    elif any(rank.environment.get("WAGMA_SIMD") for rank in facts.ranks):  # empty: as if not set
        yield note("environment", "WAGMA_SIMD sets the level of the kernels")


def probes(facts: Facts) -> Iterator[Finding]:
    """Report the probes that failed."""
    for name in sorted({name for rank in facts.ranks for name in rank.failed}):
        for error, ranks in _failures_of(facts, name).items():
            if error:
                yield warning(
                    "probe",
                    f"{name} could not be examined on {which_ranks(ranks)}: {error}",
                    "what the report says about it may be wrong",
                )


def _failures_of(facts: Facts, probe: str) -> dict[str, list[RankFacts]]:
    return holders(facts, lambda rank: rank.failed.get(probe, ""))


def gpus(facts: Facts) -> Iterator[Finding]:
    """Report what there is, and whether wagma averages arrays there."""
    for text, ranks in holders(facts, _describe).items():
        gpu = ranks[0].gpu
        if not gpu.driver:
            yield note("GPU", f"{text}; {HOST_ONLY}")
            continue
        on = f" on {which_ranks(ranks)}" if len(ranks) < len(facts.ranks) else ""
        if gpu.device:
            yield note("GPU", f"{text}{on}; wagma averages arrays on {gpu.device}{_staged(gpu)}")
        else:
            # an error names its own remedy
            why, remedy = (f" ({gpu.device_error})", "") if gpu.device_error else ("", COPY)
            yield note("GPU", f"{text}{on}; {HOST_ONLY}{why}", remedy)
        if gpu.error:
            yield warning(
                "GPU",
                f"the driver is there, but CUDA does not work on {which_ranks(ranks)}: {gpu.error}",
                "see nvidia-smi; in a container docker run --gpus all",
            )
    for ranks in by_node(facts).values():
        yield from _instances(ranks)
        yield from _turns(ranks)


def _instances(ranks: list[RankFacts]) -> Iterator[Finding]:
    """Report ranks of a node that have different instances of MIG."""
    instances = [rank.gpu.device for rank in ranks if " MIG " in rank.gpu.device]
    if instances and len({rank.gpu.uuid for rank in ranks if rank.gpu.device}) > 1:
        yield note(
            "GPU",
            f"{instances[0]} is an instance of MIG: instances do not reach each other's memory, "
            "and calls copy through the host",
            "give all ranks of a node one instance, or whole GPUs",
        )


def _turns(ranks: list[RankFacts]) -> Iterator[Finding]:
    """Report ranks of a node that share GPUs without MPS.

    Ranks that see the same GPUs share them; those that see several are taken to spread over them.
    """
    sharing: dict[tuple[str, int], list[RankFacts]] = {}
    for rank in ranks:
        if rank.gpu.uuid and rank.gpu.devices:
            sharing.setdefault((rank.gpu.uuid, rank.gpu.devices), []).append(rank)
    for (_, gpus), users in sharing.items():
        if len(users) > gpus and any(rank.gpu.mps is False for rank in users):
            shared = f"{gpus} GPU{'' if gpus == 1 else 's'}"
            yield note(
                "GPU",
                f"{which_ranks(users)} share {shared} and take turns there, of 0.5 ms or more",
                "start a rank for each GPU, or NVIDIA's MPS before the job: "
                "nvidia-cuda-mps-control -d",
            )


def _describe(rank: RankFacts) -> str:
    gpu = rank.gpu
    if not gpu.driver:
        return "no NVIDIA driver"
    count = "unknown number of" if gpu.devices is None else str(gpu.devices)
    counted = f"{count} GPU{'' if gpu.devices == 1 else 's'}"
    libraries = [_torch(gpu), f"CuPy {gpu.cupy}" if gpu.cupy else "", _gpu_aware(rank)]
    return ", ".join([f"{counted}, driver {gpu.driver}", *filter(None, libraries)])


def _staged(gpu: Gpu) -> str:
    """Return where arrays are copied through host memory."""
    staged = "memory='staged', through the host"
    if not gpu.apart:
        return f", between nodes by {staged}"
    one, other = gpu.apart
    return f"; GPU {one} does not reach GPU {other}: arrays there have {staged}"


def _torch(gpu: Gpu) -> str:
    if not gpu.torch:
        return ""
    them = "it" if gpu.devices == 1 else "them"
    use = {True: f" uses {them}", False: f" does not use {them}", None: ""}[gpu.torch_cuda]
    return f"PyTorch {gpu.torch}{use}"


def _gpu_aware(rank: RankFacts) -> str:
    """Return whether MPI takes pointers to GPU memory, in words."""
    if not rank.mpi.family:
        return ""
    asked = rank.environment.get("MPICH_GPU_SUPPORT_ENABLED")
    if rank.mpi.cuda is None:
        return f"MPICH_GPU_SUPPORT_ENABLED={asked}" if asked else "MPI does not say if GPU-aware"
    return f"{rank.mpi.family} is {'' if rank.mpi.cuda else 'not '}GPU-aware"
