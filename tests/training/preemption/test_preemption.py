"""A signal to one rank: all end together, save, and one of them asks for another start."""

import errno
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ending import CASES, LIMIT, backward, new_optimizer
from tiny import COMM, RANK, SIZE

import wagma
from wagma.checkpoint import Checkpointer
from wagma.collectives import PeerError
from wagma.preemption import EXIT_RESTART, Preemption

pytestmark = pytest.mark.mpi

SLURM = (
    *("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_HET_JOB_ID"),
    *("SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME"),
)


class FakeSaver:
    """Notes what is asked of a checkpointer."""

    def __init__(self, opt: wagma.DistributedOptimizer, restarts: int = 0) -> None:
        self.opt = opt
        self.restarts = restarts
        self.started_version = opt.version
        self.done: list[Any] = []
        self.error: Exception | None = None
        self.has_saved = False

    def save(self) -> None:
        if self.error is not None:
            raise self.error
        self.done.append(("save", self.opt.version))

    def wait(self) -> None:
        self.done.append("wait")

    def saved_since_start(self) -> bool:
        return self.has_saved

    def note_restart(self) -> None:
        self.done.append("note")

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SLURM:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put back what a program that ends leaves: it ignores further signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def scontrol(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], Path]:
    """Put a scontrol on PATH that ends with a status; its arguments are in the file returned."""

    def make(status: int) -> Path:
        folder = Path(COMM.bcast(str(tmp_path)))
        noted = folder / "noted"
        if RANK == 0:
            (folder / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {noted}\nexit {status}\n')
            (folder / "scontrol").chmod(0o755)
        COMM.Barrier()
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_ID", "14")
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
        return noted

    return make


def kill() -> None:
    os.kill(os.getpid(), signal.SIGUSR2)


def run(
    opt: wagma.DistributedOptimizer,
    preemption: Preemption,
    asker: int = SIZE - 1,
    limit: float = LIMIT,
) -> None:
    until = time.monotonic() + 60
    while opt.version < limit and not preemption.stopping:
        assert time.monotonic() < until, "nobody stops"
        if opt.version >= 2 and asker == RANK and not preemption.received:
            kill()
        if not opt.pending:
            backward(opt)
        opt.step()


def finish(
    name: str = "AllreduceSGD",
    *,
    restarts: int = 0,
    change: Callable[[FakeSaver], None] = lambda _: None,
    **arguments: Any,
) -> tuple[object, list[Any], int]:
    """Return the exit code of a training, what its saver did, and its last version."""
    with pytest.raises(SystemExit) as ended:  # noqa: SIM117 (as programs are)
        with new_optimizer(CASES[name].make(COMM)) as opt:
            saver = FakeSaver(opt, restarts)
            with Preemption(optimizer=opt, checkpointer=saver, **arguments) as preemption:
                run(opt, preemption)
                change(saver)
                preemption.finish()
    kill()  # Slurm may signal again, while the program ends
    with pytest.raises(RuntimeError, match="closed"):
        opt.step()
    return ended.value.code, saver.done, opt.version


@pytest.mark.parametrize("name", ["AllreduceSGD", "WAGMA", "KSync-1", "ADPSGD", "SGP"])
def test_all_ranks_save_and_end(name: str) -> None:
    code, done, version = finish(name, comm=COMM)
    assert code == EXIT_RESTART == 85
    assert done == [("save", version), "wait", *(["note"] if RANK == 0 else []), "close"]
    assert len(set(COMM.allgather(version))) == 1


def test_servers_are_synchronised() -> None:
    if SIZE < 2:
        pytest.skip("one rank has no server")
    with pytest.raises(SystemExit):  # noqa: SIM117
        with new_optimizer(wagma.ParameterServerSGD(COMM)) as opt:
            saver = FakeSaver(opt)
            with Preemption(optimizer=opt, checkpointer=saver) as preemption:
                run(opt, preemption, asker=0, limit=math.inf)  # other learners wait for no rank
                end = opt.version
                preemption.finish()
    assert COMM.allgather(saver.done[0]) == [("save", COMM.bcast(end) + 1)] * SIZE


@pytest.mark.parametrize(("status", "code"), [(0, 0), (1, EXIT_RESTART)])
def test_slurm_is_asked_once_for_this_task_of_an_array(
    scontrol: Callable[[int], Path], status: int, code: int
) -> None:
    noted = scontrol(status)
    assert finish()[0] == code
    assert noted.read_text() == "requeue 12_3\n"


def test_too_many_restarts(
    scontrol: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = scontrol(0)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "4")
    assert finish(max_restarts=4)[0] == 1
    assert finish(max_restarts=5, restarts=5)[0] == 1
    assert not noted.exists()
    assert finish(max_restarts=5)[0] == 0


def test_without_a_step_nothing_is_started_again(scontrol: Callable[[int], Path]) -> None:
    noted = scontrol(0)

    def change(saver: FakeSaver) -> None:
        saver.started_version = saver.opt.version

    code, done, version = finish(change=change)
    assert code == 1
    assert done == [("save", version), "wait", "close"]
    assert not noted.exists()


def test_what_cannot_be_saved_is_not_started_again(scontrol: Callable[[int], Path]) -> None:
    noted = scontrol(0)
    with pytest.raises(OSError, match="full"):  # noqa: SIM117
        with new_optimizer(CASES["AllreduceSGD"].make(COMM)) as opt:
            saver = FakeSaver(opt)
            with Preemption(optimizer=opt, checkpointer=saver) as preemption:
                run(opt, preemption)
                saver.error = OSError("full")
                preemption.finish()
    assert not noted.exists()


@pytest.mark.parametrize(
    ("saves_before", "asynchronous"),
    [
        (False, False),
        (True, True),
        pytest.param(False, True, marks=pytest.mark.long),
        pytest.param(True, False, marks=pytest.mark.long),
    ],
)
def test_a_disk_that_is_full_at_the_end(
    scontrol: Callable[[int], Path],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    asynchronous: bool,
    saves_before: bool,
) -> None:
    """The job goes on from what it has saved since its start; from nothing else."""
    noted = scontrol(0)
    folder = noted.parent / "checkpoints"
    for start in range(1 + saves_before):  # what the first start has saved counts for that one
        first = start == 0
        with pytest.raises(SystemExit if saves_before and first else OSError) as ended:  # noqa: SIM117
            with new_optimizer(wagma.AllreduceSGD(COMM)) as opt:
                every = 1 if first and saves_before else None
                saver = Checkpointer(folder, opt, every=every, asynchronous=asynchronous)
                with Preemption(optimizer=opt, checkpointer=saver) as preemption:
                    assert saver.load() == (not first)
                    while opt.version < LIMIT and not preemption.stopping:
                        if opt.version >= 2 + saver.started_version and RANK == 0:
                            preemption.request_stop()
                        backward(opt)
                        opt.step()
                        saver.maybe_save()
                    saver.wait()
                    assert saver.saved_since_start() == (every is not None)
                    with monkeypatch.context() as full:
                        if RANK == SIZE - 1:
                            full.setattr(saver._folder, "write", no_space)
                        preemption.finish()
        if isinstance(ended.value, SystemExit):
            assert ended.value.code == 0
            assert "No space left" in caplog.text
            assert ("an earlier checkpoint of this run" in caplog.text) == (RANK == 0)
        COMM.Barrier()
        assert noted.exists() == saves_before
    if saves_before:
        assert noted.read_text() == "requeue 12_3\n"


def no_space(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_of_an_earlier_save_does_not_keep_the_training_from_going_on() -> None:
    """A saver that writes in a thread tells it in the next call, which itself succeeds."""
    told: list[bool] = []

    def change(saver: FakeSaver) -> None:
        def save() -> None:
            told.append(True)
            if len(told) == 1:
                raise OSError("was full")

        saver.save = save  # type: ignore[method-assign]

    assert finish(change=change)[0] == EXIT_RESTART
    assert len(told) == 2


def test_a_signal_before_there_is_an_optimizer() -> None:
    with Preemption() as preemption:
        if RANK == 0:
            kill()
        with new_optimizer(CASES["DPSGD"].make(COMM)) as opt:
            preemption.attach(opt)
            while opt.version < LIMIT and not preemption.stopping:
                backward(opt)
                opt.step()
            assert COMM.allgather(opt.version) == [SIZE + 1] * SIZE
    with pytest.raises(RuntimeError, match="attach"):
        Preemption(signals=()).finish()


def test_nothing_happens_where_nobody_asks() -> None:
    with new_optimizer(CASES["LocalSGD"].make(COMM)) as opt:
        saver = FakeSaver(opt)
        with Preemption(optimizer=opt, checkpointer=saver) as preemption:
            backward(opt)
            opt.step()
            preemption.finish()
        assert not saver.done
        assert not opt.stopping


@pytest.mark.parametrize("name", ["AllreduceSGD", "EagerSGD-solo", "WAGMA", "ADPSGD"])
def test_signals_at_any_moment(name: str) -> None:
    """During creation, steps and waits for a slow rank; all ranks, or one, some twice."""
    for seed in range(4):
        draw = random.Random(f"{seed} {RANK}")
        asks = seed % SIZE == RANK or seed == 3
        timers = [threading.Timer(draw.uniform(0, 0.05), kill) for _ in range(2 * asks)]
        with Preemption() as preemption:
            for timer in timers:
                timer.start()
            with new_optimizer(CASES[name].make(COMM)) as opt:
                preemption.attach(opt)
                while not preemption.stopping:  # signals may come after any number of versions
                    time.sleep(0.004 if (seed + 1) % SIZE == RANK else 0)
                    backward(opt)
                    opt.step()
                ends = COMM.allgather((opt.stopping, opt.version))
                for timer in timers:
                    timer.join()
            assert ends == [(True, ends[0][1])] * SIZE


def test_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank knows when the job ends; a clock that is set changes nothing."""
    now = time.time
    if RANK == SIZE - 1:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(now()) + 100))
    with new_optimizer(CASES["AllreduceSGD"].make(COMM)) as opt:
        began = time.monotonic()
        with Preemption(optimizer=opt, margin=99.7) as preemption:
            monkeypatch.setattr("time.time", lambda: now() - 3600)
            while not preemption.stopping:
                assert time.monotonic() < began + 30
                backward(opt)
                opt.step()
                time.sleep(0.005)
        assert len(set(COMM.allgather(opt.version))) == 1
        assert not preemption.received


def test_another_communicator() -> None:
    if SIZE < 2:
        pytest.skip("one rank has one")
    with new_optimizer(CASES["AllreduceSGD"].make(COMM)) as opt:
        with pytest.raises(ValueError, match="leave comm out"):
            Preemption(COMM.Split(RANK), optimizer=opt)
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL


def test_an_error_on_one_rank_is_no_end_on_which_all_agree() -> None:
    if SIZE < 2:
        pytest.skip("one rank alone")
    error = KeyError if RANK == 0 else PeerError
    with pytest.raises(error):  # noqa: SIM117
        with new_optimizer(CASES["AllreduceSGD"].make(COMM)) as opt:
            with Preemption(optimizer=opt) as preemption:
                kill()
                if RANK == 0:
                    raise KeyError
                while opt.version < LIMIT and not preemption.stopping:
                    backward(opt)
                    opt.step()
    assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
