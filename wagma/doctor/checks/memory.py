"""Shared memory, pages, other processes' memory, and the clock that ranks share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from wagma.doctor.checks.software import holders
from wagma.doctor.facts import (
    Facts,
    Finding,
    Level,
    Memory,
    RankFacts,
    Wanted,
    by_node,
    note,
    ok,
    over_messages,
    problem,
    warning,
    which_ranks,
)
from wagma.memory import handle_memory
from wagma.units import plural, size_text

DOCKER_DEFAULT = 64 << 20
MPI_NEEDS = 32 << 20  # with 16 MiB, MPICH has been seen to crash with two ranks
GIB = 1 << 30
PAGES = "/sys/kernel/mm/transparent_hugepage"


def before_mpi(facts: Facts) -> Iterator[Finding]:
    """Report what can make MPI abort when it starts: it puts its own messages into /dev/shm."""
    yield from _unusable(facts)
    for rank in facts.ranks:
        memory = rank.memory
        if memory.shm_bytes and memory.shm_free < MPI_NEEDS and not memory.shm_error:
            yield warning(
                "memory",
                f"/dev/shm has only {size_text(memory.shm_free)} free: MPI may crash when it "
                'starts ("Bus error", signal 7), or later',
                _enlarge(memory.shm_bytes),
                (rank.host,),
            )


def shared_memory(facts: Facts) -> Iterator[Finding]:
    """Report whether /dev/shm can be used, and whether the handle that is wanted fits; by node."""
    yield from _unusable(facts)
    if over_messages(facts):
        text = "collectives over messages take no room in /dev/shm"
        hosts = tuple(ranks[0].host for ranks in by_node(facts).values())
        yield ok("memory", text, hosts=hosts)
        return
    for ranks in by_node(facts).values():
        if any(rank.memory.shm_error or "memory" in rank.failed for rank in ranks):
            continue
        if any(rank.engine.error or "engine" in rank.failed for rank in ranks):
            continue  # it says what a handle needs
        if len({rank.memory.shm_device for rank in ranks}) > 1:
            yield problem(
                "memory",
                f"{which_ranks(ranks)} share a machine, but have different /dev/shm",
                "run the ranks of a machine in one container, or with --ipc=host",
            )
        else:
            # What a handle needs that cannot be made is not known.
            findings = [*_quorum(ranks, facts.wanted)] or _room(ranks, facts.wanted)
            for finding in findings:
                yield replace(finding, hosts=(ranks[0].host,))


def _unusable(facts: Facts) -> Iterator[Finding]:
    for error, ranks in holders(facts, lambda rank: rank.memory.shm_error).items():
        if error:
            yield problem(
                "memory",
                f"/dev/shm cannot be used on {which_ranks(ranks)}: {error}",
                "mount a tmpfs there that everybody may write to: "
                "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
            )


def _quorum(ranks: Sequence[RankFacts], wanted: Wanted) -> Iterator[Finding]:
    """Report a quorum larger than the number of ranks."""
    n = len(ranks)
    if wanted.quorum.isdecimal() and int(wanted.quorum) > n:
        yield warning(
            "memory",
            f"--quorum {wanted.quorum} is more than the {plural(n, 'rank')} here: no "
            "such handle can be made over them, and what one needs was not looked at",
            f"start {wanted.quorum} ranks or more on a machine, or give a lower quorum",
        )


def _room(ranks: Sequence[RankFacts], wanted: Wanted) -> Iterator[Finding]:
    memory, n = ranks[0].memory, len(ranks)
    quorum = int(wanted.quorum) if wanted.quorum.isdecimal() else wanted.quorum
    first, most = handle_memory(wanted.array_bytes, n, quorum)
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
        f"/dev/shm has {size_text(free)} free; {_handle(wanted)} over "
        f"{plural(n, 'rank')} needs {size_text(n * first)}, with the default options at "
        f"most {size_text(n * most)}"
    )
    bounded = "" if limit else "WAGMA_SHM_LIMIT sets how many bytes each rank may use"
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
    elif killed := _over_limit(ranks, first):
        yield Finding(
            "memory",
            _fatal(wanted),
            f"{text}; but {killed}",
            "allow more: srun --mem or --mem-per-cpu, docker run --memory, limits.memory in "
            "Kubernetes; or use smaller arrays or fewer ranks",
        )
    elif n * most > free:
        yield note(
            "memory",
            f"{text}: what goes beyond is for ranks that are very late, and they wait if it "
            "cannot be had",
            bounded,
        )
    elif killed := _over_limit(ranks, most):
        yield note("memory", f"{text}, for ranks that are very late; but {killed}", bounded)
    else:
        yield ok("memory", text)


def _over_limit(ranks: Sequence[RankFacts], needed: int) -> str:
    """Return which control group has no room for `needed` bytes of each rank; empty: all have.

    Pages of /dev/shm are charged to the group of the rank that commits them.
    """
    for of_group in _by_group(ranks).values():
        memory = min((rank.memory for rank in of_group), key=lambda memory: memory.group_left)
        if len(of_group) * needed > memory.group_left:
            return (
                f"the control group of {which_ranks(of_group)} has only "
                f"{size_text(memory.group_left)} left of the {size_text(memory.group_limit)} of "
                "memory that it is allowed: ranks that use more are killed"
            )
    return ""


def _by_group(ranks: Sequence[RankFacts]) -> Mapping[int, list[RankFacts]]:
    """Return the ranks of each control group whose memory is limited."""
    groups: dict[int, list[RankFacts]] = {}
    for rank in ranks:
        if rank.memory.group:
            groups.setdefault(rank.memory.group, []).append(rank)
    return groups


def _enlarge(needed: int) -> str:
    size = f"{needed // GIB + 1}g"  # MPI wants some of it as well
    return (
        f"enlarge it: mount -o remount,size={size} /dev/shm; containers: docker run "
        f"--shm-size={size}, or --ipc=host; Kubernetes: emptyDir with medium: Memory"
    )


def _fatal(wanted: Wanted) -> Level:
    """Return the level of a handle that does not fit: a problem if the user gave its size."""
    return Level.PROBLEM if wanted.given else Level.WARNING


def _handle(wanted: Wanted) -> str:
    example = "" if wanted.given else " (an example, see --bytes)"
    return f"a handle of {size_text(wanted.array_bytes)}{example} with quorum={wanted.quorum}"


def _limit(rank: RankFacts) -> int:
    text = rank.environment.get("WAGMA_SHM_LIMIT", "")
    return int(text) if text.isdecimal() else 0


def huge_pages(facts: Facts) -> Iterator[Finding]:
    """Report transparent huge pages, for arrays and for the segments of collectives."""
    told = holders(facts, lambda rank: f"{rank.memory.thp}, in /dev/shm {_huge(rank.memory)}")
    for text, ranks in told.items():
        memory = ranks[0].memory
        if not memory.thp:
            yield note("pages", "the kernel has no transparent huge pages")
        elif memory.thp == "never":
            yield note(
                "pages",
                f"transparent huge pages: {text}: large arrays are in pages of 4 KiB",
                f"echo madvise > {PAGES}/enabled",
            )
        elif memory.thp_shmem == "deny":
            yield note(
                "pages",
                f"transparent huge pages: {text}: collectives are in pages of 4 KiB",
                f"echo never > {PAGES}/shmem_enabled, with which the option huge= of /dev/shm is "
                "followed",
            )
        elif _huge(memory) not in ("never", "advise"):
            yield ok("pages", f"transparent huge pages: {text}")
        elif all(rank.engine.huge_pages for rank in ranks):
            made = "collectives ask for them, and get them"
            yield ok("pages", f"transparent huge pages: {text}; {made}")
        else:
            # The engine allocates pages before they are touched, when advice is not looked at, and
            # asks for huge ones then, for which this kernel is too old.
            yield note(
                "pages",
                f"transparent huge pages: {text}: collectives are in pages of 4 KiB",
                "as root: mount -o remount,huge=within_size /dev/shm",
            )


def _huge(memory: Memory) -> str:
    """Return the policy of /dev/shm: its mount option, unless the kernel's switch overrides it."""
    return memory.thp_shmem if memory.thp_shmem in ("deny", "force") else memory.shm_huge


def cma(facts: Facts) -> Iterator[Finding]:
    """Report whether ranks may read each other's memory, as for MPI's large messages."""
    refused = [rank for rank in facts.ranks if rank.memory.cma is False]
    scope = facts.ranks[0].memory.ptrace_scope
    instead = "; wagma passes private arrays through shared memory"
    used = "; wagma does with private arrays where that is faster"
    if any(rank.environment.get("WAGMA_CMA") == "0" for rank in facts.ranks):
        used = "; WAGMA_CMA=0 keeps wagma from it"
    if over_messages(facts):  # which are MPI's
        instead = used = ""
    if refused:
        because = f", ptrace_scope is {scope}" if scope else ""
        yield note(
            "CMA",
            f"{which_ranks(refused)} may not read other ranks' memory "
            f"({refused[0].memory.cma_error}{because}): MPI's large messages are copied "
            f"twice{instead}",
            "sysctl kernel.yama.ptrace_scope=0; in a container docker run --cap-add=SYS_PTRACE",
        )
    elif any(rank.memory.cma for rank in facts.ranks):
        yield ok("CMA", f"ranks may read each other's memory, as MPI does{used}")
    elif scope:
        yield note(
            "CMA",
            f"kernel.yama.ptrace_scope is {scope}: ranks may not read each other's memory: "
            f"MPI's large messages are copied twice{instead}",
            "sysctl kernel.yama.ptrace_scope=0",
        )


def clock(facts: Facts) -> Iterator[Finding]:
    """Report ranks of a node without a common clock, on which grace and spreads depend."""
    for ranks in by_node(facts).values():
        behind = [rank for rank in ranks if rank.clock.behind > 0]
        if behind:
            most = max(rank.clock.behind for rank in behind)
            yield problem(
                "clock",
                f"CLOCK_MONOTONIC of {which_ranks(behind)} is {most:.3g} s or more behind that of "
                "another rank on the same machine",
                "start all ranks of a machine in one time namespace: in one container, or in "
                "containers that were not restored or made with unshare --time",
            )
        elif len({rank.clock.namespace for rank in ranks}) > 1:
            yield warning(
                "clock",
                f"{which_ranks(ranks)} are in different time namespaces of one machine; their "
                "clocks agree as far as could be seen",
                "start all ranks of a machine in one container",
            )
        elif len(ranks) > 1:
            yield ok("clock", "ranks share CLOCK_MONOTONIC", hosts=(ranks[0].host,))
