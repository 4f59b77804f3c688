"""Read the number of ranks and the job from the environment that a launcher sets."""

import pytest

from wagma.collectives.rendezvous.job import Job
from wagma.collectives.rendezvous.meeting import rank_and_size
from wagma.collectives.rendezvous.patience import Patience

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def test_torchrun() -> None:
    job = Job.of(TORCHRUN)
    assert (job.rank, job.size) == (1, 4)
    assert job.key
    assert job.key == Job.of(TORCHRUN | {"RANK": "2", "LOCAL_RANK": "2"}).key


@pytest.mark.parametrize(
    "name",
    [
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "WAGMA_JOB",
    ],
)
def test_jobs_are_told_apart(name: str) -> None:
    assert Job.of(TORCHRUN | {name: "other"}).key != Job.of(TORCHRUN).key


def test_a_name_of_the_job_is_enough() -> None:
    numbers = {"RANK": "0", "WORLD_SIZE": "2"}
    named = numbers | {"WAGMA_JOB": "mine"}
    assert Job.of(named).key == Job.of(named | {"MASTER_PORT": "1"}).key
    assert Job.of(named).key != Job.of(named | {"TORCHELASTIC_RESTART_COUNT": "1"}).key
    with pytest.raises(ValueError, match="set WAGMA_JOB to a name"):
        Job.of(numbers)
    assert Job.of({"RANK": "0", "WORLD_SIZE": "1"}) == Job(0, 1, "")


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "no launcher": (dict.fromkeys(TORCHRUN), "RANK and WORLD_SIZE are not set.*torchrun.*mpiexec"),
    "no rank": ({"RANK": None}, "RANK and WORLD_SIZE are not set"),
    "empty": ({"RANK": ""}, "RANK and WORLD_SIZE are not set"),
    "MPICH": (
        dict.fromkeys(TORCHRUN) | {"PMI_RANK": "0"},
        r"PMI_RANK is set.*comm=\"auto\", or MPI\.COMM_WORLD",
    ),
    "Open MPI": (
        dict.fromkeys(TORCHRUN) | {"OMPI_COMM_WORLD_RANK": "0"},
        r"OMPI_COMM_WORLD_RANK is set.*comm=\"auto\", or MPI\.COMM_WORLD",
    ),
    "left over": (
        {"PMI_SIZE": "8"},
        r"WORLD_SIZE=4.*an mpiexec started 8 ranks.*MPI\.COMM_WORLD, or unset",
    ),
    "rank too high": ({"RANK": "4"}, "RANK=4 in the environment must be less than WORLD_SIZE=4"),
    "negative": ({"RANK": "-1"}, "RANK='-1'.* must be a number, 0 or more"),
    "no number": ({"WORLD_SIZE": "four"}, "WORLD_SIZE='four'.* must be a number, 1 or more"),
    "no ranks": ({"WORLD_SIZE": "0"}, "WORLD_SIZE='0'.* must be a number, 1 or more"),
    "local": ({"LOCAL_RANK": "x"}, "LOCAL_RANK='x'.* must be a number"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong(case: str) -> None:
    changes, message = WRONG[case]
    environment = {k: v for k, v in {**TORCHRUN, **changes}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        Job.of(environment)


@pytest.mark.parametrize("changes", [{"LOCAL_WORLD_SIZE": "2"}, {"LOCAL_RANK": "0"}])
def test_several_nodes(changes: dict[str, str]) -> None:
    with pytest.raises(NotImplementedError, match=r"several nodes.*one job per node"):
        Job.of(TORCHRUN | changes)


def test_the_same_number_from_mpi_is_no_contradiction() -> None:
    assert Job.of(TORCHRUN | {"OMPI_COMM_WORLD_SIZE": "4"}).size == 4
    assert Job.of(TORCHRUN | {"PMI_SIZE": "1"}).size == 4  # mpiexec -n 1 torchrun


def test_without_a_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert rank_and_size(None) == (1, 4)


def test_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong about the options is for the meeting, which has to be reached."""
    assert Patience.of({"timeout": 3, "name": "w", "grace": 0.5}) == (3.0, 60.0, "w")
    assert Patience.of({"stall_warning": None}) == (float("inf"), float("inf"), None)
    assert Patience.of({"timeout": "soon"}) == Patience()
    monkeypatch.setenv("WAGMA_STALL_WARNING", "7")
    assert Patience.of({"stall_warning": 5.0}).stall_warning == 7.0
