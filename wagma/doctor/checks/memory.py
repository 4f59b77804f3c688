"""Shared memory, pages, other processes' memory, and the clock that ranks share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wagma.doctor.checks.software import holders
from wagma.doctor.facts import Facts, Finding, Level, RankFacts, Wanted, by_node, which_ranks
from wagma.doctor.sizes import needed_bytes, size_text

__all__ = ["clock", "cma", "huge_pages", "shared_memory"]

DOCKER_DEFAULT = 64 << 20
GIB = 1 << 30
PAGES = "/sys/kernel/mm/transparent_hugepage"


def shared_memory(facts: Facts) -> Iterator[Finding]:
    """Whether /dev/shm can be used, and whether the handle that is wanted fits; by node."""
    for error, ranks in holders(facts, lambda rank: rank.memory.shm_error).items():
        if error:
            yield Finding(
                "memory",
                Level.PROBLEM,
                f"/dev/shm cannot be used on {which_ranks(ranks)}: {error}",
                "mount a tmpfs there that everybody may write to: "
                "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
            )
    for ranks in by_node(facts).values():
        if any(rank.memory.shm_error or "memory" in rank.failed for rank in ranks):
            continue
        if len({rank.memory.shm_device for rank in ranks}) > 1:
            yield Finding(
                "memory",
                Level.PROBLEM,
                f"{which_ranks(ranks)} share a machine, but have different /dev/shm",
                "run the ranks of a machine in one container, or with --ipc=host",
            )
        else:
            for finding in _room(ranks, facts.wanted):
                yield replace(finding, hosts=(ranks[0].host,))


def _room(ranks: Sequence[RankFacts], wanted: Wanted) -> Iterator[Finding]:
    memory, n = ranks[0].memory, len(ranks)
    first, most = needed_bytes(wanted, n)
    limit = _limit(ranks[0])
    if limit and limit < first:
        yield Finding(
            "memory",
            _fatal(wanted),
            f"WAGMA_SHM_LIMIT is {size_text(limit)} per rank, but {_handle(wanted)} needs "
            f"{size_text(first)}: creating it fails",
            f"set it to {first + (1 << 20)} or more, or unset it",
        )
        return
    most = min(most, max(first, limit)) if limit else most
    free = memory.shm_free if memory.shm_bytes else memory.available
    text = (
        f"/dev/shm has {size_text(free)} free; {_handle(wanted)} over {n} "
        f"rank{'s' if n > 1 else ''} needs {size_text(n * first)}, at most {size_text(n * most)}"
    )
    if n * first > free:
        small = memory.shm_bytes == DOCKER_DEFAULT
        yield Finding(
            "memory",
            _fatal(wanted),
            text + (" (64 MiB is what containers get by default)" if small else ""),
            _enlarge(n * first),
        )
    elif memory.available and n * first > memory.available:
        yield Finding(
            "memory",
            _fatal(wanted),
            f"{text}; but the machine has only {size_text(memory.available)} of memory left",
            "use smaller arrays or fewer ranks: /dev/shm is memory",
        )
    elif n * most > free:
        yield Finding(
            "memory",
            Level.NOTE,
            f"{text}: what goes beyond is for ranks that are very late, and they wait if it "
            "cannot be had",
            "" if limit else "WAGMA_SHM_LIMIT sets how many bytes each rank may use",
        )
    else:
        yield Finding("memory", Level.OK, text)


def _enlarge(needed: int) -> str:
    size = f"{needed // GIB + 1}g"  # MPI wants some of it as well
    return (
        f"enlarge it: mount -o remount,size={size} /dev/shm; containers: docker run "
        f"--shm-size={size}, or --ipc=host; Kubernetes: emptyDir with medium: Memory"
    )


def _fatal(wanted: Wanted) -> Level:
    """A handle that somebody asked for has to fit; the example need not."""
    return Level.PROBLEM if wanted.given else Level.WARNING


def _handle(wanted: Wanted) -> str:
    example = "" if wanted.given else " (an example, see --bytes)"
    return f"a handle of {size_text(wanted.array_bytes)}{example} with quorum={wanted.quorum}"


def _limit(rank: RankFacts) -> int:
    text = rank.environment.get("WAGMA_SHM_LIMIT", "")
    return int(text) if text.isdecimal() else 0


def huge_pages(facts: Facts) -> Iterator[Finding]:
    """Transparent huge pages, for arrays and for the segments of collectives."""
    told = holders(
        facts, lambda rank: f"{rank.memory.thp}, for shared memory {rank.memory.thp_shmem}"
    )
    for text, ranks in told.items():
        memory = ranks[0].memory
        if not memory.thp:
            yield Finding("pages", Level.NOTE, "the kernel has no transparent huge pages")
        elif memory.thp == "never":
            yield Finding(
                "pages",
                Level.NOTE,
                f"transparent huge pages: {text}: large arrays are in pages of 4 KiB",
                f"echo madvise > {PAGES}/enabled",
            )
        elif memory.thp_shmem in ("never", "deny"):
            yield Finding(
                "pages",
                Level.NOTE,
                f"transparent huge pages: {text}: collectives are in pages of 4 KiB",
                f"echo advise > {PAGES}/shmem_enabled",
            )
        else:
            yield Finding("pages", Level.OK, f"transparent huge pages: {text}")


def cma(facts: Facts) -> Iterator[Finding]:
    """Whether ranks may read each other's memory; MPI's large messages are faster with it."""
    refused = [rank for rank in facts.ranks if rank.memory.cma is False]
    scope = facts.ranks[0].memory.ptrace_scope
    needless = "wagma does without it, its arrays pass through shared memory"
    if refused:
        because = f", ptrace_scope is {scope}" if scope else ""
        yield Finding(
            "CMA",
            Level.NOTE,
            f"{which_ranks(refused)} may not read other ranks' memory "
            f"({refused[0].memory.cma_error}{because}): {needless}; MPI's large messages are "
            "copied twice",
            "sysctl kernel.yama.ptrace_scope=0; in a container docker run --cap-add=SYS_PTRACE",
        )
    elif any(rank.memory.cma for rank in facts.ranks):
        yield Finding(
            "CMA", Level.OK, f"ranks may read each other's memory, as MPI does; {needless}"
        )
    elif scope:
        yield Finding(
            "CMA",
            Level.NOTE,
            f"kernel.yama.ptrace_scope is {scope}: ranks may not read each other's memory; "
            f"{needless}; MPI's large messages are copied twice",
            "sysctl kernel.yama.ptrace_scope=0",
        )


def clock(facts: Facts) -> Iterator[Finding]:
    """Ranks of a node tell each other times of one clock: grace and spreads depend on it."""
    for ranks in by_node(facts).values():
        behind = [rank for rank in ranks if rank.clock.behind > 0]
        if behind:
            most = max(rank.clock.behind for rank in behind)
            yield Finding(
                "clock",
                Level.PROBLEM,
                f"CLOCK_MONOTONIC of {which_ranks(behind)} is {most:.3g} s or more behind that of "
                "another rank on the same machine",
                "start all ranks of a machine in one time namespace: in one container, or in "
                "containers that were not restored or made with unshare --time",
            )
        elif len({rank.clock.namespace for rank in ranks}) > 1:
            yield Finding(
                "clock",
                Level.WARNING,
                f"{which_ranks(ranks)} are in different time namespaces of one machine; their "
                "clocks agree as far as could be seen",
                "start all ranks of a machine in one container",
            )
        elif len(ranks) > 1:
            yield Finding("clock", Level.OK, "ranks share CLOCK_MONOTONIC", hosts=(ranks[0].host,))
