"""Facts for the doctor's checks: of healthy ranks, and with changes."""

from dataclasses import replace
from typing import Any

from wagma.collectives.options import ENVIRONMENT
from wagma.doctor.facts import (
    Clock,
    Cpus,
    Engine,
    Facts,
    Finding,
    Level,
    Live,
    Memory,
    Mpi,
    RankFacts,
    Wanted,
)
from wagma.doctor.software import OTHER_VARIABLES

GIB = 1 << 30
MIB = 1 << 20
EXAMPLE = Wanted(array_bytes=100 * MIB, quorum="all", given=False)
NO_MPI = {"error": "cannot load MPI library", "family": "", "version": ""}
VERSIONS = {"Python": "3.11.7", "wagma": "0.1.0", "numpy": "2.4.6", "mpi4py": "4.1.2"}


def healthy(size: int = 4) -> Facts:
    """Ranks of one node with a core each, and nothing to complain about."""
    ranks = [
        RankFacts(
            rank=rank,
            host="node1",
            machine="boot1",
            versions=VERSIONS,
            environment={"OMP_NUM_THREADS": "1", "PMI_SIZE": str(size)},
            mpi=Mpi(
                family="MPICH",
                version="5.0.2",
                paths=["/opt/mpich/lib/libmpi.so.12"],
                standard=(5, 0),
                thread_level="MULTIPLE",
                rank=rank,
                size=size,
                cuda=False,
                mpiexec=["/opt/mpich/bin/mpiexec"],
            ),
            engine=Engine(
                abi=2,
                simd="avx2",
                options={variable: option for variable, (option, _) in ENVIRONMENT.items()},
                own=["WAGMA_PROGRESS", "WAGMA_PROGRESS_CPU"],
                variables=OTHER_VARIABLES,
            ),
            cpus=Cpus(affinity=[rank], online=8, core_of={rank: rank}),
            memory=Memory(
                shm_device=21,
                shm_bytes=8 * GIB,
                shm_free=8 * GIB,
                available=16 * GIB,
                thp="madvise",
                shm_huge="within_size",
                thp_shmem="never",
                cma=True if size > 1 else None,
            ),
            clock=Clock(namespace="time:[1]"),
        )
        for rank in range(size)
    ]
    live = [Live(calls=3, ranks=size)] * size
    return Facts(ranks=ranks, live=live, wanted=EXAMPLE, launcher="MPI" if size > 1 else "")


def changed(facts: Facts, *which: int, **fields: Any) -> Facts:
    """Facts in which `fields` of some ranks (all) are others; nested ones are given as dicts."""

    def change(rank: RankFacts) -> RankFacts:
        new = {
            name: replace(getattr(rank, name), **value)
            if name in ("mpi", "engine", "cpus", "memory", "gpu", "clock")
            else value
            for name, value in fields.items()
        }
        return replace(rank, **new)

    chosen = which or range(len(facts.ranks))
    return replace(facts, ranks=[change(r) if r.rank in chosen else r for r in facts.ranks])


def environment(facts: Facts, *which: int, **variables: str) -> Facts:
    """Facts in which some ranks have more variables."""
    for rank in which or range(len(facts.ranks)):
        before = facts.ranks[rank].environment
        facts = changed(facts, rank, environment={**before, **variables})
    return facts


def affinities(*cpus: list[int], online: int = 8) -> Facts:
    facts = healthy(len(cpus))
    for rank, affinity in enumerate(cpus):
        new = {"affinity": affinity, "online": online, "core_of": {c: c for c in affinity}}
        facts = changed(facts, rank, cpus=new)
    return facts


def alone(**variables: str) -> Facts:
    facts = healthy(1)
    return changed(facts, environment={"OMP_NUM_THREADS": "1", **variables})


def two_nodes() -> Facts:
    return changed(healthy(), 2, 3, node=2, host="node2", machine="boot2")


def many_nodes(nodes: int) -> Facts:
    """Two ranks on each."""
    facts = healthy(2 * nodes)
    for rank in range(2 * nodes):
        node = rank // 2
        cpus = {"affinity": [rank % 2], "core_of": {rank % 2: rank % 2}}
        name = {"host": f"node{node}", "machine": f"boot{node}"}
        facts = changed(facts, rank, node=2 * node, cpus=cpus, **name)
    return facts


def bad(findings: list[Finding]) -> list[Finding]:
    """What is worth a warning."""
    return [f for f in findings if f.level in (Level.WARNING, Level.PROBLEM)]
