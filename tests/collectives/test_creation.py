"""Making a collective: what is refused, with the same error on every rank, and what is left."""

import os
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from refusals import error_everywhere

from wagma.collectives import (
    GroupAllreduce,
    HandleError,
    MismatchError,
    Options,
    PartialAllreduce,
    PeerError,
    SegmentError,
    _engine,
)
from wagma.collectives.rendezvous.meeting import Meeting
from wagma.collectives.rendezvous.patience import Patience

pytestmark = pytest.mark.mpi


def x_of(count: int = 5) -> np.ndarray:
    return np.ones(count, np.float32)


def test_rank_0_alone_gathers() -> None:
    """Messages to the other ranks tell them of errors, and of no values."""
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    with Meeting(MPI.COMM_WORLD, Patience()) as meeting:
        gathered = meeting.gather(lambda: [rank] * rank)
        assert gathered == (None if rank else [[other] * other for other in range(size)])
        assert meeting.exchange(lambda: rank) == [*range(size)]
        with pytest.raises(ValueError, match="invalid literal"):
            meeting.gather(lambda: int("x" if rank == size - 1 else "0"))


# ---- arguments that differ -----------------------------------------------------------------------

DIFFERENT: dict[str, tuple[Any, Any]] = {
    "group_size": (1, 2),
    "quorum": ("all", "majority"),
    "late": ("stale", "carry"),
    "missed": ("once", "fast-forward"),
    "activation": ("group", "world"),
    "grouping": ("dynamic", "fixed"),
    "grace": ("auto", 0.5),
    "sync_period": (None, 10),
    "average": (True, False),
    "window": (5, 6),
    "timeout": (None, 1.0),
    "stall_warning": (60.0, 30.0),
    "redo_after": (None, 1e-3),
    "shm_limit": (None, 10**9),
    "name": ("a", "b"),
    "seed": (0, 1),
}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("option", DIFFERENT)
def test_options_that_differ(comm: MPI.Intracomm, option: str) -> None:
    """One rank alone passes the second value: the error says which rank and both values."""
    odd = comm.size - 1
    usual, unusual = DIFFERENT[option]
    value = unusual if comm.rank == odd else usual
    text = error_everywhere(
        comm, lambda: PartialAllreduce(comm, x_of(), **{option: value}), MismatchError
    )
    assert text.startswith(f"{option} differs between ranks: {usual!r} on rank")
    assert text.endswith(f"{unusual!r} on rank {odd}")


@pytest.mark.mpi(min_size=2)
def test_arrays_that_differ(comm: MPI.Intracomm) -> None:
    odd = comm.rank == 1
    text = error_everywhere(
        comm, lambda: PartialAllreduce(comm, x_of(6 if odd else 5)), MismatchError
    )
    assert text.startswith("shape differs between ranks: (5,) on rank")
    x = x_of().astype(np.float64) if odd else x_of()
    text = error_everywhere(comm, lambda: PartialAllreduce(comm, x), MismatchError)
    assert text.startswith("dtype differs between ranks: 'float32' on rank")


@pytest.mark.mpi(min_size=2)
def test_an_environment_that_differs(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    if comm.rank == 0:
        monkeypatch.setenv("WAGMA_REDO_AFTER", "0.5")
    text = error_everywhere(comm, lambda: PartialAllreduce(comm, x_of()), MismatchError)
    assert text.startswith("redo_after differs between ranks: 0.5 on rank 0; None on rank")


@pytest.mark.mpi(min_size=4)
def test_ranks_are_listed_in_runs(comm: MPI.Intracomm) -> None:
    text = error_everywhere(
        comm, lambda: PartialAllreduce(comm, x_of(), window=3 + (comm.rank == 2)), MismatchError
    )
    others = "0-1, 3" if comm.size == 4 else f"0-1, 3-{comm.size - 1}"
    assert text == f"window differs between ranks: 3 on ranks {others}; 4 on rank 2"


# ---- arguments that are wrong --------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[], Any], dict[str, Any], type[Exception], str]] = {
    "strided": (lambda: x_of(6)[::2], {}, ValueError, "not C-contiguous"),
    "list": (lambda: [1.0], {}, TypeError, "expected a numpy array"),
    "dtype": (lambda: x_of().astype(np.complex128), {}, TypeError, "complex128"),
    "integers": (lambda: x_of().astype(np.int32), {}, TypeError, "integers"),
    "group_size": (x_of, {"group_size": 0}, ValueError, "group_size"),
    "large group": (x_of, {"group_size": 100}, ValueError, "group_size=100 must be 1 to"),
    "quorum": (x_of, {"quorum": 100}, ValueError, "quorum=100 must be 1 to"),
    "late": (x_of, {"late": "carry on"}, ValueError, "late='carry on' must be 'stale', 'skip' or"),
    "late, missed": (
        x_of,
        {"late": "carry", "missed": "fast-forward"},
        ValueError,
        "missed='fast-forward' and late='carry'",
    ),
    "pairs": (x_of, {"grouping": "pairs", "group_size": 3}, ValueError, "grouping='pairs'"),
    "seed": (x_of, {"seed": -1}, ValueError, "seed=-1 must be"),
    "transport": (x_of, {"transport": "pigeon"}, ValueError, "transport='pigeon' must be"),
    "progress": (x_of, {"progress": "sleep:1"}, ValueError, "progress='sleep:1': the micro"),
    "progress_cpu": (x_of, {"progress_cpu": -1}, ValueError, "progress_cpu=-1 must be"),
    "window": (x_of, {"window": "wide"}, TypeError, "window"),
    "keyword": (x_of, {"groupsize": 2}, TypeError, "has no option 'groupsize'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_on_every_rank(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.delenv("WAGMA_TRANSPORT", raising=False)  # it would override the argument
    make, options, error, message = WRONG[kind]
    text = error_everywhere(comm, lambda: PartialAllreduce(comm, make(), **options), error)
    assert message in text
    assert "rank 0:" not in text


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_on_one_rank(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.delenv("WAGMA_TRANSPORT", raising=False)
    make, options, error, message = WRONG[kind]

    def create() -> None:
        if comm.rank == 1:
            PartialAllreduce(comm, make(), **options)
        else:
            PartialAllreduce(comm, x_of())

    text = error_everywhere(comm, create, error)
    assert text.startswith("rank 1: ")
    assert message in text


def test_a_wrong_environment(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAGMA_TRANSPORT", "pigeon")
    text = error_everywhere(comm, lambda: PartialAllreduce(comm, x_of()), ValueError)
    assert "WAGMA_TRANSPORT='pigeon' in the environment: transport='pigeon'" in text


# ---- trouble at the later steps ------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)
@pytest.mark.shm("the segment is what one rank makes and the others open")
@pytest.mark.parametrize("step", ["create", "open"])
def test_trouble_on_one_rank_is_everyones(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """What fails in a step, at any rank, ends it for all, and nothing is left in /dev/shm."""
    odd = 0 if step == "create" else comm.size - 1

    class Broken:
        @staticmethod
        def create(*_: Any) -> Any:
            raise SegmentError(28, "there is no room")

        open = create

    if comm.rank == odd:
        monkeypatch.setattr("wagma.collectives.rendezvous.meeting.Segment", Broken)
    text = error_everywhere(comm, lambda: PartialAllreduce(comm, x_of()), SegmentError)
    assert f"rank {odd}: there is no room" in text
    assert not leftovers()


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_is_interrupted(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its KeyboardInterrupt, the others learn about it."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    if comm.rank == 1:
        monkeypatch.setattr("wagma.collectives.arrays.resolve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            PartialAllreduce(comm, x_of())
    else:
        with pytest.raises(PeerError, match="rank 1: interrupted by KeyboardInterrupt"):
            PartialAllreduce(comm, x_of())


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_is_interrupted_between_the_steps(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory or channel is there, the others wait in a handle, and this rank does not come."""
    originals = {name: getattr(Meeting, name) for name in ("segment", "channel")}

    def interrupted(name: str, *arguments: Any) -> Any:
        originals[name](*arguments)
        raise KeyboardInterrupt

    if comm.rank == 1:
        for name in originals:
            monkeypatch.setattr(Meeting, name, partialmethod(partial(interrupted, name)))
        with pytest.raises(KeyboardInterrupt):
            PartialAllreduce(comm, x_of())
        monkeypatch.undo()
    else:
        with pytest.raises(PeerError, match="rank 1: interrupted by KeyboardInterrupt"):
            PartialAllreduce(comm, x_of())
    PartialAllreduce(comm, x_of()).close()


@pytest.mark.mpi(min_size=2)
def test_a_call_that_python_refuses_on_one_rank(comm: MPI.Intracomm) -> None:
    """It comes to the meeting all the same: the others, who have called rightly, are there."""

    def create() -> None:
        if comm.rank == 1:
            GroupAllreduce(comm, x_of())  # type: ignore[call-arg]
        else:
            GroupAllreduce(comm, x_of(), group_size=1)

    text = error_everywhere(comm, create, TypeError)
    assert text.startswith("rank 1: GroupAllreduce.__init__() missing 1 required keyword-only")
    PartialAllreduce(comm, x_of()).close()


# ---- communicators -------------------------------------------------------------------------------


def test_what_is_no_communicator(comm: MPI.Intracomm) -> None:
    class ProcessGroup:
        """As torch's."""

    class ProcessGroupGloo(ProcessGroup):
        pass

    for wrong, message in (
        (ProcessGroupGloo(), "comm is a ProcessGroup of torch"),
        ("world", "comm='world' is no communicator"),
        (comm.rank, "comm is of type int"),
    ):
        with pytest.raises(TypeError, match=f'{message}.*"auto".*None.*mpi4py communicator'):
            PartialAllreduce(wrong, x_of())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="COMM_NULL"):
        PartialAllreduce(MPI.COMM_NULL, x_of())  # type: ignore[arg-type]


@pytest.mark.mpi(min_size=2)
def test_intercommunicators(comm: MPI.Intracomm) -> None:
    half = comm.Split(comm.rank % 2)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2)
    with pytest.raises(TypeError, match="Merge"):
        PartialAllreduce(inter, x_of())  # type: ignore[arg-type]
    inter.Free()
    half.Free()


def test_a_communicator_of_one(comm: MPI.Intracomm) -> None:
    x = np.full(3, comm.rank, np.float32)
    with GroupAllreduce(MPI.COMM_SELF, x, group_size=1, sync_period=3) as coll:
        for version in range(7):
            outcome = coll.allreduce(x)
            assert (outcome.contributors, outcome.versions) == ((0,), (version,))
            assert (x == comm.rank).all()


def test_the_communicator_is_not_used_afterwards(comm: MPI.Intracomm) -> None:
    own = comm.Dup()
    coll = PartialAllreduce(own, x_of())
    own.Free()
    coll.allreduce(x_of())
    coll.close()


@pytest.mark.mpi(min_size=2)
def test_nodes(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if rank 0 had a node for itself."""

    class Nodes(MPI.Intracomm):
        def Idup(self) -> tuple["Nodes", MPI.Request]:  # noqa: N802
            duplicate, request = super().Idup()
            return Nodes(duplicate), request

        def Split_type(self, kind: int, *_: Any) -> MPI.Intracomm:  # noqa: N802
            assert kind == MPI.COMM_TYPE_SHARED
            return self.Split(self.rank > 0)

    monkeypatch.delenv("WAGMA_TRANSPORT", raising=False)
    spread = Nodes(comm)
    text = error_everywhere(
        comm, lambda: PartialAllreduce(spread, x_of(), transport="shm"), ValueError
    )
    assert f"{comm.size} ranks are on several nodes, at most {comm.size - 1} on each" in text
    assert "leave transport (WAGMA_TRANSPORT) at 'auto'" in text
    with PartialAllreduce(spread, x_of()) as coll:
        assert (coll.transport, coll.options.transport) == ("mpi", "auto")
        assert "transport='mpi'" in repr(coll)
    with PartialAllreduce(comm, x_of()) as coll:
        assert coll.transport == "shm"


SLURM_STEP = {"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
# Environments of a process that MPI says is alone: what the error names; None: it is right.
LAUNCHED: dict[str, tuple[dict[str, str], str | None]] = {
    "mpiexec of MPICH": ({"PMI_SIZE": "4"}, "PMI_SIZE is 4.*Use the mpiexec of the MPI"),
    "mpiexec of Open MPI": ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE is 4.*Use the mp"),
    "srun": (SLURM_STEP, "SLURM_STEP_NUM_TASKS is 4.*--mpi=pmi2.*--mpi=pmix"),
    "srun, wrong PMI": (SLURM_STEP | {"PMI_SIZE": "4"}, "PMI_SIZE is 4.*--mpi=pmi2.*--mpi=pmix"),
    "srun, PMIx": (SLURM_STEP | {"PMIX_RANK": "2"}, "--mpi=pmi2.*--mpi=pmix"),
    "torchrun": ({"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"}, 'WORLD_SIZE is 4.*comm="auto"'),
    "torchrun under mpiexec -n 1": (
        {"PMI_SIZE": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"},
        "WORLD_SIZE is 4.*mpiexec -n 4",
    ),
    "torchrun of one": ({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}, None),
    "WORLD_SIZE": ({"WORLD_SIZE": "4"}, "WORLD_SIZE is 4.*unset WORLD_SIZE"),
    "WORLD_SIZE in a step of a shell": (
        SLURM_STEP | {"SLURM_STEP_NUM_TASKS": "1", "WORLD_SIZE": "4"},
        "WORLD_SIZE is 4",
    ),
    "WORLD_SIZE left over where mpiexec is called": ({"PMI_SIZE": "1", "WORLD_SIZE": "4"}, None),
    "srun of one": (SLURM_STEP | {"SLURM_STEP_NUM_TASKS": "1"}, None),
    "salloc": ({"SLURM_NTASKS": "4"}, None),
    "sbatch": ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, None),
    "mpiexec -n 1 in salloc": ({"SLURM_NTASKS": "4", "PMI_SIZE": "1"}, None),
    "mpiexec -n 1 in a step": (SLURM_STEP | {"PMI_SIZE": "1"}, None),
    "Open MPI's -n 1 in a step": (SLURM_STEP | {"OMPI_COMM_WORLD_SIZE": "1"}, None),
}


@pytest.mark.parametrize("case", LAUNCHED)
def test_a_launcher_that_mpi_did_not_notice(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    environment, message = LAUNCHED[case]
    for name in {name for variables, _ in LAUNCHED.values() for name in variables}:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if comm.size > 1 or message is None:
        PartialAllreduce(comm, x_of()).close()
    else:
        with pytest.raises(RuntimeError, match=message):
            PartialAllreduce(comm, x_of())
    PartialAllreduce(MPI.COMM_SELF, x_of()).close()


def test_several_mpis_in_one_process(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What /proc/self/maps shows where a package has loaded another MPI than mpi4py."""
    maps = tmp_path / "maps"
    row = "7f0000000000-7f0000001000 r-xp 00000000 08:01 7    "
    monkeypatch.setattr("wagma.launch.libraries._MAPS", maps)
    maps.write_text(f"{row}/opt/mpich/lib/libmpi.so.12\n{row}\n{row}/usr/lib/libmpi.so.40.1\n")
    with pytest.raises(RuntimeError, match=r"several MPI.*so\.12, /usr/.*MPI4PY_LIBMPI"):
        PartialAllreduce(comm, x_of())
    PartialAllreduce(MPI.COMM_SELF, x_of()).close()
    maps.write_text(f"{row}/opt/mpich/lib/libmpi.so.12\n")
    PartialAllreduce(comm, x_of()).close()


def test_auto_under_mpiexec() -> None:
    with PartialAllreduce("auto", x_of()) as coll:
        assert (coll.rank, coll.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)


# ---- what is made --------------------------------------------------------------------------------


def leftovers() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob(f"wagma-{os.getpid()}-*")]


def test_nothing_is_left_in_dev_shm(comm: MPI.Intracomm) -> None:
    coll = PartialAllreduce(comm, x_of())
    assert not leftovers()
    coll.close()
    assert not leftovers()


def test_the_options_in_force(comm: MPI.Intracomm) -> None:
    with GroupAllreduce(comm, x_of(), group_size=1, sync_period=7, name="weights") as coll:
        assert (
            coll.options
            == Options(
                group_size=1, quorum=1, sync_period=7, window=7, name="weights"
            ).with_environment()
        )
        assert coll.rank == comm.rank
        assert coll.size == comm.size
        text = repr(coll)
    assert text.startswith(f"GroupAllreduce(name='weights', rank={comm.rank}, size={comm.size}")
    with PartialAllreduce(comm, x_of()) as coll:
        assert coll.options.group_size == comm.size
        assert coll.options.window == 64


def test_group_allreduce_is_what_it_says(comm: MPI.Intracomm) -> None:
    assert issubclass(GroupAllreduce, PartialAllreduce)
    with pytest.raises(TypeError, match="group_size"):
        GroupAllreduce(comm, x_of())  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="quorum"):
        GroupAllreduce(comm, x_of(), group_size=1, quorum=1)  # type: ignore[call-arg]


def test_a_handle_that_could_not_be_made_is_unusable() -> None:
    coll = PartialAllreduce.__new__(PartialAllreduce)
    with pytest.raises(HandleError):
        coll.allreduce(x_of())
    coll.close()
    assert isinstance(coll, _engine.Handle)
