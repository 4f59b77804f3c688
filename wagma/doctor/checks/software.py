"""The engine, versions that have to be the same, and what the environment sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches

from wagma.doctor.facts import Facts, Finding, Level, RankFacts, which_ranks

__all__ = ["engine", "environment", "holders", "probes", "versions"]


def holders(facts: Facts, value: Callable[[RankFacts], str]) -> dict[str, list[RankFacts]]:
    """The ranks that have each value."""
    found: dict[str, list[RankFacts]] = {}
    for rank in facts.ranks:
        found.setdefault(value(rank), []).append(rank)
    return found


def _told(found: dict[str, list[RankFacts]]) -> str:
    return "; ".join(f"{value} on {which_ranks(ranks)}" for value, ranks in found.items())


def engine(facts: Facts) -> Iterator[Finding]:
    """Whether the extension can be imported."""
    for error, ranks in holders(facts, lambda rank: rank.engine.error).items():
        if error:
            yield Finding(
                "engine",
                Level.PROBLEM,
                f"wagma.collectives cannot be imported on {which_ranks(ranks)}: {error}",
                "build it again, in the root of the sources: "
                "python -m pip install --force-reinstall .",
            )
        elif not any("engine" in rank.failed for rank in ranks):
            levels = sorted({rank.engine.simd for rank in ranks})
            yield Finding(
                "engine",
                Level.OK,
                f"C interface {ranks[0].engine.abi}, kernels {', '.join(levels)}",
            )


def versions(facts: Facts) -> Iterator[Finding]:
    """Ranks with different software cannot work together, or do so by luck."""
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
        yield Finding("versions", Level.OK, "the same on all ranks")


def _versions_of(facts: Facts, package: str) -> dict[str, list[RankFacts]]:
    return holders(facts, lambda rank: rank.versions.get(package, "unknown"))


def _different(name: str, found: dict[str, list[RankFacts]]) -> Finding:
    return Finding(
        "versions",
        Level.PROBLEM,
        f"{name} differs between ranks: {_told(found)}",
        "start all ranks with the same Python environment: the same path on every host, and no "
        "other one first on PATH",
    )


def environment(facts: Facts) -> Iterator[Finding]:
    """Variables of wagma: known, alike on all ranks, with values that make sense."""
    names = sorted({name for rank in facts.ranks for name in rank.environment})
    for name in names:
        if name.startswith("WAGMA_"):
            yield from _variable(facts, name)
    for error, ranks in holders(facts, lambda rank: rank.engine.options_error).items():
        if error:
            yield Finding(
                "environment",
                Level.PROBLEM,
                f"{which_ranks(ranks)}: {error}",
                "unset the variable, or correct it: creating a collective fails with it",
            )


def _variable(facts: Facts, name: str) -> Iterator[Finding]:
    known = facts.ranks[0].engine
    if not known.options:  # the engine is missing, and with it the list
        return
    found = holders(facts, lambda rank: rank.environment.get(name, "(not set)"))
    if name in known.options and name not in known.own and len(found) > 1:
        yield Finding(
            "environment",
            Level.PROBLEM,
            f"{name} differs between ranks: {_told(found)}: creating a collective fails",
            "let the launcher pass it to all ranks: mpiexec -genv (MPICH), -x (Open MPI), "
            "srun --export=ALL",
        )
    elif name in known.options:
        if not any(name in rank.engine.options_error for rank in facts.ranks):  # told as a problem
            yield Finding(
                "environment",
                Level.NOTE,
                f"{name}={', '.join(found)} overrides the option {known.options[name]}",
            )
    elif name == "WAGMA_SIMD":
        yield from _simd(facts)
    elif name == "WAGMA_CMA" and not set(found) <= {"0", "1", ""}:
        yield Finding(
            "environment",
            Level.WARNING,
            f"WAGMA_CMA={', '.join(found)} is not followed: it is 0 or 1",
            "0 keeps ranks from reading private arrays from each other's memory; or unset it",
        )
    elif name in known.variables:
        yield Finding("environment", Level.NOTE, f"{name} sets {known.variables[name]}")
    else:
        names = [*known.options, *known.variables]
        # Without what all of them begin with, which would make them all alike.
        ends = {other.removeprefix("WAGMA_"): other for other in names}
        likely = get_close_matches(name.removeprefix("WAGMA_"), ends, n=1, cutoff=0.5)
        yield Finding(
            "environment",
            Level.WARNING,
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
        yield Finding(
            "environment",
            Level.WARNING,
            f"WAGMA_SIMD={ignored[0].environment['WAGMA_SIMD']} is not followed on "
            f"{which_ranks(ignored)}: the kernels are {ignored[0].engine.simd}",
            "use scalar, avx2 or avx512, as far as the processor has it; or unset it",
        )
    elif any(rank.environment.get("WAGMA_SIMD") for rank in facts.ranks):  # empty: as if not set
        yield Finding("environment", Level.NOTE, "WAGMA_SIMD sets the level of the kernels")


def probes(facts: Facts) -> Iterator[Finding]:
    """What could not be found out."""
    for name in sorted({name for rank in facts.ranks for name in rank.failed}):
        for error, ranks in _failures_of(facts, name).items():
            if error:
                yield Finding(
                    "probe",
                    Level.WARNING,
                    f"{name} could not be examined on {which_ranks(ranks)}: {error}",
                    "what the report says about it may be wrong",
                )


def _failures_of(facts: Facts, probe: str) -> dict[str, list[RankFacts]]:
    return holders(facts, lambda rank: rank.failed.get(probe, ""))
