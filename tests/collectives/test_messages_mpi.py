"""Handles over messages: which are made, ranks that are elsewhere, threads, ends."""

import os
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import (
    Channel,
    GroupAllreduce,
    Handle,
    HandleError,
    MismatchError,
    PartialAllreduce,
    PeerError,
    SyncAllreduce,
    _engine,
    transport,
)

pytestmark = [pytest.mark.mpi, pytest.mark.messages_only]

LIVENESS_S = 60.0  # far beyond what any test takes: a hang becomes a failure


@pytest.fixture(autouse=True)
def without_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made over messages here says so itself."""
    monkeypatch.delenv("WAGMA_TRANSPORT", raising=False)


def x_of(rank: int) -> np.ndarray:
    return np.full(3, rank, np.float32)


# ---- what collectives are made over --------------------------------------------------------------


def test_messages_on_one_node_and_alone(comm: MPI.Intracomm) -> None:
    for over in (comm, MPI.COMM_SELF):
        with SyncAllreduce(over, x_of(0), transport="mpi", average=False) as coll:
            x = x_of(1)
            coll.allreduce(x)
            assert (x == over.size).all()
            assert coll.transport == "mpi"
            assert "transport='mpi'" in repr(coll)
        with SyncAllreduce(over, x_of(0)) as coll:
            assert coll.transport == "shm"
            assert "transport='shm'" in repr(coll)


def test_the_environment_chooses(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mpi", "shm"):
        monkeypatch.setenv("WAGMA_TRANSPORT", name)
        for argument in ("auto", "shm", "mpi"):
            with PartialAllreduce(comm, x_of(0), transport=argument) as coll:
                assert (coll.transport, coll.options.transport) == (name, name)


@pytest.mark.mpi(min_size=2)
def test_a_choice_that_reached_one_rank_only(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    if comm.rank == 1:
        monkeypatch.setenv("WAGMA_TRANSPORT", "mpi")
    with pytest.raises(MismatchError, match=r"^transport differs .*'auto'.*'mpi' on rank 1$"):
        PartialAllreduce(comm, x_of(0))


def test_each_rank_takes_part_as_it_likes(comm: MPI.Intracomm) -> None:
    ways = ("sleep:500", "spin", "main", "yield")
    with PartialAllreduce(
        comm,
        x_of(0),
        transport="mpi",
        progress=ways[comm.rank % 4],
        progress_cpu=None if comm.rank % 2 else min(os.sched_getaffinity(0)),
        average=False,
    ) as coll:
        for version in range(10):
            x = x_of(comm.rank + version)
            coll.sync(x)
            assert (x == sum(rank + version for rank in range(comm.size))).all()
        assert coll.stats().wakeups == 0 or ways[comm.rank % 4] != "main"


# ---- creation that fails -------------------------------------------------------------------------


def refused(comm: MPI.Intracomm, kind: type[Exception], **options: Any) -> str:
    with pytest.raises(kind) as caught:
        PartialAllreduce(comm, x_of(0), transport="mpi", **options)
    texts = comm.allgather(str(caught.value))
    assert len(set(texts)) == 1
    return texts[0]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("what", "kind"), [("load", ImportError), ("connect", MemoryError), ("handle", MemoryError)]
)
def test_trouble_on_one_rank_is_everyones(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch, what: str, kind: type[Exception]
) -> None:
    """Also where the others are in a handle already, and wait there for the one that failed."""

    def fails(*_: Any, **__: Any) -> Any:
        raise kind("broken")

    def fails_later(*arguments: Any) -> Any:
        original(*arguments)
        raise kind("broken")

    original: Callable[..., Any] = transport.connect
    if comm.rank == 1 and what == "load":
        monkeypatch.setattr(transport, "load", fails)
    elif comm.rank == 1 and what == "connect":
        monkeypatch.setattr(transport, "connect", fails_later)
    elif comm.rank == 1:
        monkeypatch.setattr(_engine.arrays, "match", fails)
    assert refused(comm, kind) == ("rank 1: broken" if comm.size > 1 else "broken")
    monkeypatch.undo()
    with PartialAllreduce(comm, x_of(0), transport="mpi") as coll:
        coll.sync(x_of(0))


def test_a_channel_is_for_one_handle(comm: MPI.Intracomm) -> None:
    capsule = transport.connect(comm)
    options = {"size": comm.size, "count": 3}
    channel = Channel(options, capsule)
    with pytest.raises(ValueError, match=rf"rank=99: the channel is that of rank {comm.rank}"):
        Handle(channel, 99)
    handle = Handle(channel, comm.rank)
    with pytest.raises(RuntimeError, match="taken by a handle before"):
        Handle(channel, comm.rank)
    with pytest.raises(ValueError, match="incorrect name"):
        Channel(options, capsule)
    handle.close()
    for other in (None, object()):
        with pytest.raises(TypeError):
            Handle(other, comm.rank)  # type: ignore[arg-type]


def test_a_channel_of_another_size(comm: MPI.Intracomm) -> None:
    channel = Channel({"size": comm.size + 1, "count": 3}, transport.connect(comm))
    with pytest.raises(ValueError, match=f"size is {comm.size + 1}"):
        Handle(channel, comm.rank)


# ---- ranks that are elsewhere --------------------------------------------------------------------


class Sign:
    """What rank 0 can see without calling MPI, which would move its messages; collective."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        name = comm.bcast(f"wagma-test-{uuid.uuid4()}")
        self._path = Path(tempfile.gettempdir(), name)
        self._others = comm.Split(comm.rank > 0)
        self._gives = comm.rank == 1

    def give_after_others(self) -> None:
        """Given when all ranks but rank 0 have come here."""
        self._others.Barrier()
        if self._gives:
            self._path.touch()

    def given(self) -> bool:
        return self._path.exists()

    def remove(self) -> None:
        self._others.Free()
        self._path.unlink(missing_ok=True)


def sleep_until(sign: Sign) -> bool:
    """With the GIL released. False: it was not given in time."""
    end = time.monotonic() + LIVENESS_S
    while not sign.given() and time.monotonic() < end:
        time.sleep(0.01)
    return sign.given()


def compute_until(sign: Sign) -> bool:
    """With the GIL held."""
    end = time.monotonic() + LIVENESS_S
    while not sign.given() and time.monotonic() < end:
        sum(range(200_000))
    return sign.given()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("elsewhere", [sleep_until, compute_until])
@pytest.mark.parametrize("group_size", [2, 8])
@pytest.mark.parametrize("late", ["stale", "carry"])
def test_nobody_waits_for_a_rank_that_is_elsewhere(
    comm: MPI.Intracomm, elsewhere: Callable[[Sign], bool], group_size: int, late: Any
) -> None:
    """Rank 0 calls a version, and nothing more until the others have completed theirs."""
    steps = 12
    sign = Sign(comm)
    value = 1.0 + comm.rank
    with PartialAllreduce(
        comm,
        np.zeros(20_000, np.float32),
        transport="mpi",
        group_size=min(group_size, comm.size),
        quorum=1,
        late=late,
        window=2 * steps + 2,
        average=False,
        grace=0,
        timeout=LIVENESS_S,
    ) as coll:
        x = np.full(20_000, value, np.float32)
        coll.sync(x)
        if comm.rank == 0:
            finished = elsewhere(sign)
        else:
            while coll.version <= steps:
                version = coll.version
                x[:] = value * (version + 1)
                outcome = coll.allreduce(x)
                check(x, outcome, late, comm.rank, version)
        sign.give_after_others()
        comm.Barrier()
        sign.remove()
        if comm.rank == 0:
            assert finished, "the others have waited for rank 0"
            while coll.version <= steps:
                version = coll.version
                x[:] = value * (version + 1)
                outcome = coll.allreduce(x)
                check(x, outcome, late, comm.rank, version)
                assert outcome.late or comm.size == 1 or group_size < comm.size


def check(x: np.ndarray, outcome: Any, late: str, rank: int, version: int) -> None:
    """The sum decodes into contributions; rank 0's are in nobody's versions while it is away."""
    held = dict(zip(outcome.contributors, outcome.versions, strict=True))
    if late == "stale":
        expected = sum((1.0 + r) * (v + 1) for r, v in held.items()) if outcome.merged else 0.0
        expected += (1.0 + rank) * (version + 1) if outcome.late else 0.0
        assert x[0] == np.float32(expected), (x[0], outcome)
        if rank > 0 and 0 in held:
            assert held[0] == 0
    elif rank > 0:
        assert 0 not in held
    assert (x == x[0]).all()


@pytest.mark.mpi(min_size=2)
def test_without_a_thread_they_do_wait(comm: MPI.Intracomm) -> None:
    """What the tests above would find, if nothing moved while a rank is elsewhere."""
    sign = Sign(comm)
    with GroupAllreduce(
        comm, x_of(0), group_size=comm.size, transport="mpi", progress="main", grace=0
    ) as coll:
        coll.sync(x_of(0))
        comm.Barrier()  # rank 0 is out of its call, in which it would take part in the next version
        if comm.rank == 0:
            assert sleep_until(sign)
        else:
            request = coll.iallreduce(x_of(0))
            with pytest.raises(TimeoutError):
                request.wait(0.2)
        sign.give_after_others()
        if comm.rank == 0:
            coll.allreduce(x_of(0))
        else:
            request.wait()
    comm.Barrier()
    sign.remove()


@pytest.mark.parametrize("micros", [2_000, 50_000])
def test_a_thread_that_sleeps_wakes_up_as_often_as_it_says(
    comm: MPI.Intracomm, micros: int
) -> None:
    with SyncAllreduce(
        comm, x_of(0), transport="mpi", progress=f"sleep:{micros}", stall_warning=None
    ) as coll:
        coll.allreduce(x_of(0))
        comm.Barrier()  # it looks more often while something is on its way to another rank
        time.sleep(0.1)  # and shortly after a version
        began, before = time.monotonic(), coll.stats().wakeups
        time.sleep(0.3)
        wakeups, seconds = coll.stats().wakeups - before, time.monotonic() - began
        assert wakeups <= seconds / (micros * 1e-6) + 3
        time.sleep(2e-6 * micros)
        while coll.stats().wakeups == before and time.monotonic() - began < LIVENESS_S:
            time.sleep(0.01)
        assert coll.stats().wakeups > before


# ---- together and at the end ---------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)
def test_collectives_over_both_at_once(comm: MPI.Intracomm) -> None:
    """Over overlapping communicators, each in its own order."""
    halves = comm.Split(comm.rank % 2)
    rng = np.random.default_rng(comm.rank)
    with (
        PartialAllreduce(comm, x_of(0), transport="mpi", average=False) as messages,
        PartialAllreduce(comm, x_of(0), transport="shm", average=False) as memory,
        PartialAllreduce(halves, x_of(0), transport="mpi", average=False) as half,
    ):
        whose = {messages: range(comm.size), memory: range(comm.size)}
        whose[half] = range(comm.rank % 2, comm.size, 2)
        for version in range(8):
            colls = list(whose)
            requests = {}
            for index in rng.permutation(3):
                coll = colls[index]
                x = x_of(comm.rank + version)
                requests[coll] = (x, coll.iallreduce(x))
            for index in rng.permutation(3):
                x, request = requests[colls[index]]
                request.wait()
                assert (x == sum(rank + version for rank in whose[colls[index]])).all()
    halves.Free()


@pytest.mark.mpi(min_size=2)
def test_ranks_that_close_at_different_times(comm: MPI.Intracomm) -> None:
    """Who has closed takes part until the last one has; with sync nobody is ahead of the others."""
    for sync in (False, True):
        with GroupAllreduce(
            comm, x_of(0), group_size=comm.size, transport="mpi", average=False, grace=0
        ) as coll:
            for _ in range(1 if sync else 3 * (comm.rank + 1)):
                coll.allreduce(x_of(1))
            coll.close(sync=sync)
            assert coll.closed
            assert coll.version == (2 if sync else 3 * (comm.rank + 1))
            coll.close()


def test_arrays_outlive_their_handle(comm: MPI.Intracomm) -> None:
    coll = GroupAllreduce(comm, x_of(0), group_size=comm.size, transport="mpi", average=False)
    own = coll.empty()
    own[:] = comm.rank
    with pytest.raises(BufferError, match="still alive"):
        coll.empty()
    buffers = []
    if comm.size > 1:
        buffers.append(coll.next_contribution())
        buffers[0][:] = 1
        outcome = coll.sync(buffers[0])
        buffers.append(outcome.result)
    coll.close()
    del coll
    assert (own == comm.rank).all()
    assert all(buffer.shape == (3,) for buffer in buffers)
    own[:] = 5
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_one_that_fails_while_others_close(comm: MPI.Intracomm) -> None:
    coll = PartialAllreduce(comm, x_of(0), transport="mpi")
    coll.sync(x_of(0))
    if comm.rank == 1:
        coll.fail()
    else:
        with pytest.raises(PeerError, match="rank "):
            coll.close()
    assert coll.closed
    coll.close()


@pytest.mark.mpi(min_size=2)
def test_closing_can_be_interrupted(comm: MPI.Intracomm) -> None:
    """By a signal, as any wait; the handle is closed all the same, and the others learn of it."""

    closing = False
    done = threading.Event()

    def interrupt(*_: object) -> None:
        nonlocal closing
        if closing:
            closing = False
            raise InterruptedError

    def signals() -> None:
        while not done.wait(0.2):
            os.kill(os.getpid(), signal.SIGUSR1)

    coll = PartialAllreduce(comm, x_of(0), transport="mpi")
    coll.sync(x_of(0))
    if comm.rank == 0:
        before = signal.signal(signal.SIGUSR1, interrupt)
        sender = threading.Thread(target=signals)
        sender.start()
        while not coll.closed:  # the signal may come before close() has begun
            with pytest.raises(InterruptedError):
                closing = True
                coll.close()
        done.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    comm.Barrier()
    if comm.rank > 0:
        with pytest.raises(PeerError):
            coll.close()


@pytest.mark.mpi(min_size=2)
def test_failing_ends_a_wait_of_another_thread(comm: MPI.Intracomm) -> None:
    """The wait's hooks want the GIL, which whoever fails the handle holds at first."""
    coll = SyncAllreduce(comm, x_of(comm.rank), transport="mpi", timeout=LIVENESS_S)
    ended: list[Exception] = []

    def call() -> None:
        try:
            coll.allreduce(x_of(comm.rank))
        except (HandleError, PeerError) as error:
            ended.append(error)

    caller = threading.Thread(target=call)
    if comm.rank == comm.size - 1:  # the others wait for it
        time.sleep(0.3)
    else:
        caller.start()
    if comm.rank == 0:
        time.sleep(0.1)
        coll.fail()
    if caller.ident is not None:
        caller.join(LIVENESS_S / 2)
        assert not caller.is_alive()
        assert len(ended) == 1
    coll.fail()
