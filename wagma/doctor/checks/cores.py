"""Cores: how many there are for the ranks, and who may run on which."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wagma.doctor.facts import (
    Facts,
    Finding,
    RankFacts,
    by_node,
    note,
    ok,
    over_messages,
    problem,
    warning,
    which_ranks,
)
from wagma.units import plural, spans

SHOWN_BINDINGS = 16
NOT_SPINNING = ("", "Open MPI")  # with more ranks than cores; no MPI does not either
BIND = "mpiexec -bind-to core (MPICH), --bind-to core (Open MPI), srun --cpu-bind=cores"


def cores(facts: Facts) -> Iterator[Finding]:
    """Report the bindings of every rank, and what is wrong with them; by node."""
    for ranks in _nodes(facts):
        usable = _usable(ranks)
        bindings: dict[tuple[int, ...], list[RankFacts]] = {}
        for rank in ranks:
            bindings.setdefault(tuple(rank.cpus.affinity), []).append(rank)
        findings = (
            ok("cores", _bindings(ranks[0].cpus.online, bindings)),
            *_crowding(ranks, usable, bindings),
            *_yielding(bindings),
            *_threads_of_cores(ranks, usable),
            *_limit(ranks, usable),
            *_left(ranks, usable, threads=over_messages(facts)),
        )
        for finding in findings:
            yield replace(finding, hosts=(ranks[0].host,))


def _nodes(facts: Facts) -> Iterator[list[RankFacts]]:
    """Yield the ranks of each node whose affinity masks are known."""
    for ranks in by_node(facts).values():
        known = [rank for rank in ranks if rank.cpus.affinity]
        if known:
            yield known


def _usable(ranks: Sequence[RankFacts]) -> set[int]:
    return {cpu for rank in ranks for cpu in rank.cpus.affinity}


def _bindings(online: int, bindings: dict[tuple[int, ...], list[RankFacts]]) -> str:
    parts = [
        f"{which_ranks(ranks)} on {'all' if len(cpus) == online else spans(cpus)}"
        for cpus, ranks in bindings.items()
    ]
    more = f"; and {len(parts) - SHOWN_BINDINGS} more" if len(parts) > SHOWN_BINDINGS else ""
    return f"{plural(online, 'core')}: {'; '.join(parts[:SHOWN_BINDINGS])}{more}"


def _crowding(
    ranks: Sequence[RankFacts], usable: set[int], bindings: dict[tuple[int, ...], list[RankFacts]]
) -> Iterator[Finding]:
    """Report more ranks than cores; at most one finding, the worst."""
    n, online = len(ranks), ranks[0].cpus.online
    if n > 1 and len(usable) == 1 and online > 1:
        yield problem(
            "cores",
            f"all {n} ranks are bound to core {spans(sorted(usable))}, of {online}",
            f"bind each to its own: {BIND}; or to none: -bind-to none, --bind-to none, "
            "--cpu-bind=none. With srun, see --cpus-per-task",
        )
    elif n > len(usable):
        bound = len(usable) < online
        family = ranks[0].mpi.family
        spins = (
            f", and {family}, which spins, can take seconds" if family not in NOT_SPINNING else ""
        )
        yields = "; Open MPI yields the core while it waits (--oversubscribe)"
        yield warning(
            "cores",
            f"{n} ranks share {plural(len(usable), 'core')}: times are those of the "
            f"scheduler{spins}",
            f"if the launcher bound them, bind them to more of the {online}: {BIND}; if it was a "
            "container's cpuset, start fewer ranks"
            if bound
            else f"start fewer ranks{yields if family else ''}",
        )
    elif crowded := _overlapping(bindings, online):
        yield warning(
            "cores", f"bindings overlap: {crowded}", f"bind each rank to its own core: {BIND}"
        )
    elif shared := _same_core(bindings, ranks):
        yield warning(
            "cores",
            f"hardware threads of one core are different ranks': {shared}",
            f"{BIND}; or srun --hint=nomultithread",
        )


def _overlapping(bindings: dict[tuple[int, ...], list[RankFacts]], online: int) -> str:
    """Bound ranks that do not have a core each, or partly share some."""
    bound = [(set(cpus), ranks) for cpus, ranks in bindings.items() if len(cpus) < online]
    for cpus, ranks in bound:
        if len(ranks) > len(cpus):
            return f"{which_ranks(ranks)} on {plural(len(cpus), 'core')} ({spans(sorted(cpus))})"
    for i, (cpus, ranks) in enumerate(bound):
        for others, theirs in bound[i + 1 :]:
            if common := sorted(cpus & others):
                return f"{which_ranks(ranks)} and {which_ranks(theirs)} on core {spans(common)}"
    return ""


def _yielding(bindings: dict[tuple[int, ...], list[RankFacts]]) -> Iterator[Finding]:
    """Report masks that overlap without being equal: the engine cannot tell whose a core is."""
    masks = [(set(cpus), ranks) for cpus, ranks in bindings.items()]
    for i, (cpus, ranks) in enumerate(masks):
        for others, theirs in masks[i + 1 :]:
            if common := sorted(cpus & others):
                yield note(
                    "cores",
                    f"{which_ranks(ranks)} and {which_ranks(theirs)} may run on core "
                    f"{spans(common)}, but not on the same cores otherwise: ranks that wait for "
                    "each other yield the core instead of spinning, so small collectives take "
                    "longer",
                    f"bind every rank to its own core, or none: {BIND}",
                )
                return


def _same_core(bindings: dict[tuple[int, ...], list[RankFacts]], ranks: Sequence[RankFacts]) -> str:
    """Return the ranks that are bound to different hardware threads of one physical core."""
    core_of = {cpu: core for rank in ranks for cpu, core in rank.cpus.core_of.items()}
    holder: dict[int, list[RankFacts]] = {}
    for cpus, theirs in bindings.items():
        physical = {core_of.get(cpu, cpu) for cpu in cpus}
        if len(physical) > 1:
            continue  # there is room for a choice
        (core,) = physical
        if core in holder:
            return f"{which_ranks(holder[core])} and {which_ranks(theirs)} on core {core}"
        holder[core] = theirs
    return ""


def _threads_of_cores(ranks: Sequence[RankFacts], usable: set[int]) -> Iterator[Finding]:
    physical = {core for rank in ranks for core in rank.cpus.core_of.values()}
    if len(physical) < len(ranks) <= len(usable):
        yield note(
            "cores",
            f"{plural(len(usable), 'core')} are hardware threads of {len(physical)}: "
            f"{len(ranks)} ranks share them",
        )


def _limit(ranks: Sequence[RankFacts], usable: set[int]) -> Iterator[Finding]:
    """Report a control group that gives less time than there are cores: ranks stop now and then."""
    limits = [rank.cpus.limit for rank in ranks if rank.cpus.limit is not None]
    if not limits or min(limits) >= len(usable):
        return
    text = (
        f"the control group allows the time of {min(limits):g} of "
        f"{plural(len(usable), 'core')}, for {plural(len(ranks), 'rank')}"
    )
    if min(limits) >= len(ranks):
        yield note("cores", text)
    else:
        yield warning(
            "cores",
            f"{text}: ranks are stopped in the middle of what they do",
            "raise it (docker run --cpus, limits.cpu in Kubernetes), or start fewer ranks",
        )


def _left(ranks: Sequence[RankFacts], usable: set[int], *, threads: bool) -> Iterator[Finding]:
    """Report unused cores; `threads`: each rank has a progress thread."""
    left = len(usable) - len(ranks)
    if left > 0 and len(ranks) > 1:
        yield note(
            "cores",
            f"{left} of {plural(len(usable), 'core')} left over: room for data loaders"
            + (
                ", MPI's progress and wagma's progress threads, one per rank"
                if threads
                else " and MPI's progress; wagma has no thread of its own"
            ),
        )


def threads(facts: Facts) -> Iterator[Finding]:
    """Report OpenMP's threads, which PyTorch and numpy's libraries start in every rank."""
    for ranks in _nodes(facts):
        cores, hosts = len(_usable(ranks)), (ranks[0].host,)
        total = sum(map(_threads, ranks))
        text = f"OpenMP (PyTorch) starts up to {plural(total, 'thread')} on {plural(cores, 'core')}"
        if total <= max(cores, len(ranks)):  # more ranks than cores is told above
            yield ok("threads", text, hosts=hosts)
            continue
        unset = any("OMP_NUM_THREADS" not in rank.environment for rank in ranks)
        yield warning(
            "threads",
            f"OMP_NUM_THREADS is {'not set' if unset else 'too large'}: {text}",
            f"export OMP_NUM_THREADS={max(1, cores // len(ranks))}",
            hosts,
        )


def _threads(rank: RankFacts) -> int:
    """Return the first number of OMP_NUM_THREADS, as in "4,2"; without one, a thread per core."""
    first = rank.environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else len(rank.cpus.affinity)
