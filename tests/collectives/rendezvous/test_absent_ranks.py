"""Ranks that do not come where all ranks meet over MPI: the others warn, name them, and give up."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from test_messages import open_mpi, run, said

pytestmark = pytest.mark.launch

# Rank 2 comes when the others have given up everything; then they try again.
SCRIPT = """
waits = {"timeout": 5, "stall_warning": 0.5}  # the other one may come late

def optimizer():
    import torch
    import wagma

    model = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return wagma.DistributedOptimizer(inner, wagma.LocalSGD(comm, **waits))

made = {
    "shm": lambda: PartialAllreduce(comm, x, transport="shm", **waits),
    "mpi": lambda: PartialAllreduce(comm, x, transport="mpi", name="x", **waits),
    "exchange": lambda: NeighborExchange(comm, x, **waits),
    "optimizer": optimizer,
    "wrong": lambda: PartialAllreduce(comm, x, nonsense=1, **waits),
}
if rank < 2:
    pair = comm.Create_group(comm.group.Incl([0, 1]))
    for name in kinds:
        pair.Barrier()
        try:
            made[name]()
        except StallError as error:
            say(name, error)
    comm.send("come", 2)
else:
    for other in (0, 1):
        while not comm.iprobe(other):
            time.sleep(0.01)
        comm.recv(source=other)
waits["timeout"] = 30
for name in kinds:
    if name != "wrong":
        collective = made[name]()
        collective.close()
        say("closed", name)
"""
SHORT, LONG = ("mpi", "wrong"), ("shm", "exchange", "optimizer")


@cache
def job(kinds: tuple[str, ...] = SHORT) -> subprocess.CompletedProcess[str]:
    return run(3, f"kinds = {kinds}\n{SCRIPT}")


@pytest.mark.parametrize(
    "kind", [*SHORT, *(pytest.param(kind, marks=pytest.mark.long) for kind in LONG)]
)
def test_a_rank_that_does_not_come_is_named(kind: str) -> None:
    done = job(SHORT if kind in SHORT else LONG)
    for rank in (0, 1):
        (text,) = [line for line in said(done, rank) if line.startswith(f"{kind} ")]
        assert re.match(
            rf"{kind} rank {rank} has waited \d+\.\d s in the creation for rank 2, which has not "
            r"come \(timeout 5 s\): every rank of the communicator has to make",
            text,
        ), text


def test_warnings_name_the_rank_and_the_collective() -> None:
    for rank in (0, 1):
        begin = rf"rank {rank} \(x\) has waited \d+\.\d s in the creation for rank 2, which has "
        assert re.search(begin + "not come", job().stdout), job().stdout


@pytest.mark.parametrize("kinds", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_ranks_that_have_given_up_try_again(kinds: tuple[str, ...]) -> None:
    """A collective can be made by all ranks in the same communicator when they have come."""
    done = job(kinds)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(3):
        closed = [line for line in said(done, rank) if line.startswith("closed ")]
        assert closed == [f"closed {kind}" for kind in kinds if kind != "wrong"]


@open_mpi
def test_a_rank_that_dies_before_it_comes_is_named(tmp_path: Path) -> None:
    """Where MPI tells of deaths; the others lose no time."""
    done = run(
        3,
        """
        if rank == 2:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            PartialAllreduce(comm, x)
        except PeerError as error:
            say(error)
        said = [os.path.join(os.environ["FOLDER"], str(each)) for each in (0, 1)]
        open(said[rank], "w").close()
        while not all(map(os.path.exists, said)):  # a rank that ends has failed, too
            time.sleep(0.01)
        os._exit(0)
        """,
        "--with-ft",
        "ulfm",
        FOLDER=str(tmp_path),
    )
    for rank in (0, 1):
        assert said(done, rank) == ["rank 2 died, and all ranks have to meet here"], done.stdout
