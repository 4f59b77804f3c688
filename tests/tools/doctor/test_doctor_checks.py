"""The doctor's checks: made-up facts, and what is found in them."""

from dataclasses import replace

import pytest
from doctor_facts import (
    EXAMPLE,
    GIB,
    MIB,
    NO_MPI,
    VERSIONS,
    affinities,
    alone,
    bad,
    changed,
    environment,
    healthy,
    two_nodes,
)

from wagma.doctor.checks import examine
from wagma.doctor.facts import Facts, Level, Live, RankFacts, over_messages


@pytest.mark.parametrize("size", [1, 2, 4])
def test_healthy_ranks_have_nothing_to_complain_about(size: int) -> None:
    findings = examine(healthy(size))
    assert bad(findings) == []
    assert {f.topic for f in findings} >= {"MPI", "transport", "cores", "memory", "trial"}


REFUSED = "PMI_SIZE is 4, but MPI.COMM_WORLD has one rank: each process would train alone"
WANTED = replace(EXAMPLE, given=True)

# What is wrong: facts, topic, level, words of the finding, words of the remedy.
Case = tuple[Facts, str, Level, str, str]
CASES: dict[str, Case] = {
    "no MPI": (
        changed(healthy(1), mpi=NO_MPI),
        "MPI", Level.PROBLEM, "no MPI library on rank 0: cannot load", "pip install mpich",
    ),
    "two MPIs": (
        changed(healthy(), mpi={"paths": ["/a/libmpi.so.12", "/b/libmpi.so.40"]}),
        "MPI", Level.PROBLEM, "several MPI libraries", "LD_PRELOAD",
    ),
    "two MPIs in one folder": (
        changed(healthy(), mpi={"paths": ["/lib/libmpi.so.40.30.4", "/lib/libmpich.so.12.2.0"]}),
        "MPI", Level.PROBLEM, "several MPI libraries", "LD_PRELOAD",
    ),
    "old MPI": (
        changed(healthy(), mpi={"standard": (2, 2)}),
        "MPI", Level.PROBLEM, "version 2.2 of the standard", "3.0 or newer",
    ),
    "singletons": (
        changed(healthy(1), mpi={"refused": REFUSED}),
        "launch", Level.PROBLEM, REFUSED, "/opt/mpich/bin/mpiexec",
    ),
    "singletons of srun": (
        changed(healthy(1), mpi={"refused": REFUSED, "srun": True}),
        "launch", Level.PROBLEM, REFUSED, "srun --mpi=list",
    ),
    "allocation without srun": (
        alone(SLURM_JOB_ID="7", SLURM_NTASKS="4"),
        "launch", Level.PROBLEM, "for 4 tasks (SLURM_NTASKS)", "--mpi=pmix",
    ),
    "allocation without srun, tasks per node": (
        alone(SLURM_JOB_ID="7", SLURM_NTASKS_PER_NODE="4", SLURM_NNODES="2"),
        "launch", Level.PROBLEM, "for 8 tasks (SLURM_NTASKS_PER_NODE x SLURM_NNODES)", "--mpi",
    ),
    "allocation without srun, old name": (
        alone(SLURM_JOB_ID="7", SLURM_NPROCS="2"),
        "launch", Level.PROBLEM, "for 2 tasks (SLURM_NPROCS)", "--mpi",
    ),
    "another MPI's mpiexec": (
        changed(alone(OMPI_COMM_WORLD_SIZE="4"), mpi={"foreign": "Open MPI's mpiexec"}),
        "launch", Level.PROBLEM, "started 4 ranks, but mpi4py loads MPICH",
        "launcher: /opt/mpich/bin/mpiexec",
    ),
    "another MPI's mpiexec, one rank": (
        changed(alone(PMI_SIZE="1"), mpi={"foreign": "an mpiexec of MPICH's kind"}),
        "launch", Level.WARNING, "an mpiexec of MPICH's kind started 1 rank,", "launcher",
    ),
    "PMIx alone": (
        alone(PMIX_RANK="0"), "launch", Level.WARNING, "PMIx", "each is alone",
    ),
    "ranks that are not there": (
        replace(healthy(1), lost="RANK=5 in the environment must be less than WORLD_SIZE=2"),
        "launch", Level.PROBLEM, "RANK=5", "unset RANK",
    ),
    "two nodes without messages": (
        changed(two_nodes(), 1, 3, mpi={"messages_error": "no module. Build it: make"}),
        "messages", Level.PROBLEM, 'no transport="mpi" on ranks 1, 3: no module. Build it: make',
        "run the command that is named there",
    ),
    "shared memory that is wanted, of several nodes": (
        environment(two_nodes(), WAGMA_TRANSPORT="shm"), "transport", Level.PROBLEM,
        "WAGMA_TRANSPORT=shm, but the ranks are on 2 nodes, which share no memory",
        "unset WAGMA_TRANSPORT, or set it to auto or mpi",
    ),
    "messages that are wanted without MPI": (
        environment(replace(healthy(), launcher="torchrun"), WAGMA_TRANSPORT="mpi"),
        "transport", Level.PROBLEM, "WAGMA_TRANSPORT=mpi, but the ranks have not met through MPI",
        "start the ranks with mpiexec",
    ),
    "messages that are wanted and not there": (
        environment(changed(healthy(), mpi={"messages_error": "no module"}), WAGMA_TRANSPORT="mpi"),
        "messages", Level.PROBLEM, "on ranks 0-3: no module", "run the command",
    ),
    "two nodes and no threads": (
        changed(two_nodes(), 2, mpi={"thread_level": "SERIALIZED"}),
        "messages", Level.WARNING, "SERIALIZED on rank 2: ", "MPI_THREAD_MULTIPLE",
    ),
    "containers": (
        changed(two_nodes(), machine="boot1"),
        "transport", Level.WARNING, "under one kernel", "--ipc",
    ),
    "no engine": (
        changed(healthy(), engine={"error": "undefined symbol"}),
        "engine", Level.PROBLEM, "ranks 0-3: undefined symbol", "pip install",
    ),
    "other numpy": (
        changed(healthy(), 2, versions={**VERSIONS, "numpy": "1.26"}),
        "versions", Level.PROBLEM,
        "numpy differs between ranks: 2.4.6 on ranks 0-1, 3; 1.26 on rank 2", "same Python",
    ),
    "other Python": (
        changed(healthy(), 1, versions={**VERSIONS, "Python": "3.12.0"}),
        "versions", Level.PROBLEM, "Python differs", "same Python",
    ),
    "other MPI": (
        changed(healthy(), 3, mpi={"version": "4.3.0"}),
        "versions", Level.PROBLEM, "MPICH 4.3.0 on rank 3", "same Python",
    ),
    "misspelled": (
        environment(healthy(), WAGMA_SHMLIMIT="1"),
        "environment", Level.WARNING, "WAGMA_SHMLIMIT is no variable", "WAGMA_SHM_LIMIT is one",
    ),
    "unknown": (
        environment(healthy(), WAGMA_Q="1"),
        "environment", Level.WARNING, "WAGMA_Q is no variable", "unset",
    ),
    "not passed on": (
        environment(healthy(), 0, WAGMA_REDO_AFTER="1"),
        "environment", Level.PROBLEM,
        "WAGMA_REDO_AFTER differs between ranks: 1 on rank 0; (not set) on ranks 1-3", "-genv",
    ),
    "wrong option": (
        changed(healthy(), engine={"options_error": "WAGMA_REDO_AFTER='x' is not a number"}),
        "environment", Level.PROBLEM, "ranks 0-3: WAGMA_REDO_AFTER='x'", "unset",
    ),
    "value that is none": (
        environment(healthy(), WAGMA_CMA="off"),
        "environment", Level.WARNING, "WAGMA_CMA=off is not followed", "reading private arrays",
    ),
    "level not there": (
        environment(healthy(), WAGMA_SIMD="avx10"),
        "environment", Level.WARNING, "WAGMA_SIMD=avx10 is not followed", "scalar",
    ),
    "all on one core": (
        affinities([0], [0], [0], [0]),
        "cores", Level.PROBLEM, "all 4 ranks are bound to core 0", "-bind-to core",
    ),
    "bound to too few": (
        affinities([0, 1], [0, 1], [0, 1]),
        "cores", Level.WARNING, "3 ranks share 2 cores", "more of the 8",
    ),
    "too few": (
        affinities([0, 1], [0, 1], [0, 1], online=2),
        "cores", Level.WARNING, "3 ranks share 2 cores", "fewer ranks",
    ),
    "two of four on one core": (
        affinities([0], [0], [1], [2, 3]),
        "cores", Level.WARNING, "ranks 0-1 on 1 core (0)", "own core",
    ),
    "overlap": (
        affinities([0, 1], [1, 2]),
        "cores", Level.WARNING, "rank 0 and rank 1 on core 1", "own core",
    ),
    "hardware threads": (
        changed(healthy(2), 1, cpus={"core_of": {1: 0}}),
        "cores", Level.WARNING, "rank 0 and rank 1 on core 0", "nomultithread",
    ),
    "throttled": (
        changed(healthy(), cpus={"limit": 1.5}),
        "cores", Level.WARNING, "the time of 1.5 of 4 cores", "--cpus",
    ),
    "many threads": (
        environment(healthy(), OMP_NUM_THREADS="4"),
        "threads", Level.WARNING, "up to 16 threads on 4 cores", "OMP_NUM_THREADS=1",
    ),
    "threads unset": (
        changed(affinities([0, 1], [0, 1], online=2), environment={}),
        "threads", Level.WARNING, "OMP_NUM_THREADS is not set", "OMP_NUM_THREADS=1",
    ),
    "no shm": (
        changed(healthy(), 1, memory={"shm_error": "Permission denied"}),
        "memory", Level.PROBLEM, "rank 1: Permission denied", "mount -t tmpfs",
    ),
    "small shm, as an example": (
        changed(healthy(), memory={"shm_bytes": 64 * MIB, "shm_free": 63 * MIB}),
        "memory", Level.WARNING, "63 MiB free", "--shm-size",
    ),
    "small shm, asked for": (
        replace(changed(healthy(), memory={"shm_free": 399 * MIB}), wanted=WANTED),
        "memory", Level.PROBLEM, "needs 400 MiB", "--shm-size=1g",
    ),
    "little memory": (
        changed(healthy(), memory={"available": 100 * MIB}),
        "memory", Level.WARNING, "100 MiB of memory left", "fewer ranks",
    ),
    "memory limit": (
        replace(
            changed(healthy(), memory={"group": 7, "group_limit": GIB, "group_left": 399 * MIB}),
            wanted=WANTED,
        ),
        "memory", Level.PROBLEM,
        "control group of ranks 0-3 has only 399 MiB left of the 1 GiB", "--mem",
    ),
    "memory limit of one rank": (
        changed(healthy(), 1, memory={"group": 8, "group_limit": GIB, "group_left": 99 * MIB}),
        "memory", Level.WARNING, "control group of rank 1 has only 99 MiB left", "docker run",
    ),
    "quorum of more ranks": (
        replace(healthy(1), wanted=replace(EXAMPLE, quorum="5")),
        "memory", Level.WARNING, "--quorum 5 is more than the 1 rank here", "start 5 ranks",
    ),
    "limit": (
        replace(environment(healthy(), WAGMA_SHM_LIMIT="1000000"), wanted=WANTED),
        "memory", Level.PROBLEM, "WAGMA_SHM_LIMIT is 976.6 KiB", "or unset",
    ),
    "different shm": (
        changed(healthy(), 1, memory={"shm_device": 22}),
        "memory", Level.PROBLEM, "have different /dev/shm", "--ipc=host",
    ),
    "clock": (
        changed(healthy(), 2, clock={"behind": 12.0}),
        "clock", Level.PROBLEM, "of rank 2 is 12 s or more behind", "time namespace",
    ),
    "time namespaces": (
        changed(healthy(), 2, clock={"namespace": "time:[2]"}),
        "clock", Level.WARNING, "different time namespaces", "container",
    ),
    "CUDA does not start": (
        changed(healthy(), gpu={"driver": "550", "error": "cuInit returned error 999"}),
        "GPU", Level.WARNING, "error 999", "nvidia-smi",
    ),
    "failed probe": (
        changed(healthy(), 2, failed={"GPU": "ValueError: x"}),
        "probe", Level.WARNING, "GPU could not be examined on rank 2: ValueError", "wrong",
    ),
    "wrong sum": (
        replace(healthy(), live=[Live(calls=3, ranks=4)] * 3 + [Live(ranks=4, error="E: 1 != 2")]),
        "trial", Level.PROBLEM, "failed on rank 3: E: 1 != 2", "report",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_trouble_is_found_once_and_has_a_remedy(case: Case) -> None:
    facts, topic, level, text, remedy = case
    found = [f for f in examine(facts) if f.topic == topic and text in f.text]
    assert len(found) == 1, examine(facts)
    assert found[0].level is level
    assert remedy in found[0].remedy
    assert all(f.remedy for f in bad(examine(facts)))


def test_what_ranks_talk_through() -> None:
    def found(facts: Facts) -> dict[str, str]:
        return {f.topic: f.text for f in examine(facts) if f.level is Level.OK}

    assert found(healthy())["transport"] == "shm (shared memory): ranks 0-3 on node1"
    wanted = found(environment(healthy(), WAGMA_TRANSPORT="mpi"))
    assert wanted["transport"] == "mpi (messages) between ranks of 1 node: ranks 0-3 on node1"
    for refused in (
        environment(two_nodes(), WAGMA_TRANSPORT="shm"),
        environment(replace(healthy(), launcher="torchrun"), WAGMA_TRANSPORT="mpi"),
    ):
        assert "transport" not in found(refused)
        assert not over_messages(refused)
    text = "mpi (messages) between ranks of 2 nodes: ranks 0-1 on node1; ranks 2-3 on node2"
    assert found(two_nodes())["transport"] == text
    assert "progress threads" in found(two_nodes())["messages"]
    assert "messages" not in found(replace(healthy(), launcher="torchrun"))


def test_over_messages_wagma_has_threads() -> None:
    facts = affinities([0, 1, 2], [3, 4])

    def left(facts: Facts) -> str:
        (found,) = (f.text for f in examine(facts) if f.topic == "cores" and "left over" in f.text)
        return found

    assert left(facts).endswith("and MPI's progress; wagma has no thread of its own")
    assert left(environment(facts, WAGMA_TRANSPORT="mpi")).endswith(
        "wagma's progress threads, one per rank"
    )


@pytest.mark.parametrize(
    "names",
    [
        ["libmpi.so.12.3.0"],
        ["libmpi.so.12", "libmpich.so.12.2.0"],
        ["libmpich.so.12", "libmpi_cray.so.12"],
        ["libmpi.so.12", "libmpi_abi.so.0"],
    ],
)
def test_one_mpi_can_be_several_files(names: list[str]) -> None:
    facts = changed(healthy(), mpi={"paths": [f"/opt/mpi/lib/{name}" for name in names]})
    assert bad(examine(facts)) == []


@pytest.mark.parametrize(("family", "spins"), [("MPICH", True), ("Open MPI", False), ("", False)])
def test_of_too_few_cores_only_an_mpi_that_spins_is_told(family: str, spins: bool) -> None:
    facts = changed(affinities([0, 1], [0, 1], [0, 1], online=2), mpi={"family": family})
    (found,) = (f for f in bad(examine(facts)) if f.topic == "cores")
    assert (f"and {family}, which spins" in found.text) == spins
    assert ("which spins" in found.text) == spins


def test_ranks_alone_are_shown_the_mpiexec_that_was_found() -> None:
    (found,) = (f for f in examine(healthy(1)) if f.topic == "launch")
    assert found.remedy == "/opt/mpich/bin/mpiexec -n 4 python -m wagma doctor"


def test_a_variable_that_is_a_problem_is_told_once() -> None:
    error = {"options_error": "WAGMA_REDO_AFTER='x' in the environment is not a number"}
    facts = environment(changed(healthy(), engine=error), WAGMA_REDO_AFTER="x", WAGMA_SIMD="")
    assert [f.level for f in examine(facts) if f.topic == "environment"] == [Level.PROBLEM]


@pytest.mark.parametrize(
    "facts",
    [
        alone(SLURM_JOB_ID="7", SLURM_NTASKS="1"),
        alone(SLURM_JOB_ID="7", SLURM_NTASKS="4", PMI_SIZE="1"),
        changed(alone(SLURM_JOB_ID="7", SLURM_NTASKS="4"), mpi={"srun": True}),
        alone(SLURM_NTASKS="4"),
        alone(SLURM_JOB_ID="7", SLURM_NTASKS_PER_NODE="1", SLURM_NNODES="1"),
        alone(SLURM_JOB_ID="7", SLURM_NTASKS_PER_NODE="4"),
    ],
    ids=["one task", "mpiexec -n 1", "srun -n 1", "no job", "one per node", "no nodes"],
)
def test_one_rank_on_purpose_in_an_allocation_is_none_too_few(facts: Facts) -> None:
    assert bad(examine(facts)) == []


@pytest.mark.parametrize(
    "facts",
    [
        affinities([0, 1], [0, 1], [2, 3], [2, 3]),
        affinities([0, 1], [0, 1], online=2),
        affinities([0], online=1),
    ],
    ids=["sockets", "not bound", "one core, one rank"],
)
def test_bindings_with_a_core_for_each_are_fine(facts: Facts) -> None:
    assert bad(examine(facts)) == []


def test_with_unknown_facts_every_check_has_something_to_say() -> None:
    """All probes failed: defaults everywhere."""
    failed = dict.fromkeys(("MPI", "engine", "cores", "memory", "GPU", "clock"), "OSError: no")
    facts = Facts(ranks=[RankFacts(failed=failed)], live=[Live()], wanted=EXAMPLE, launcher="")
    told = {f.text.split()[0] for f in examine(facts) if f.topic == "probe"}
    assert told == failed.keys()
