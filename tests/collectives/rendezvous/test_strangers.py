"""Connections of nobody that belongs to the job: they neither end its meeting nor hold it up.

They come from this process, whose user is the ranks': of other users the kernel tells.
"""

import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from launched import PRELUDE, Forked, addresses, clean_environment

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

MAKE = "attempt(lambda: PartialAllreduce(None, x, timeout=20))\n"


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


class Runs:
    """What a pickle would make of the process that reads it."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return print, ("somebody's code runs",)


SAID = {
    "nothing": b"",
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "a huge length": b"\xff\xff\xff\xff",
    "a length below the ranks' limit": (1 << 25).to_bytes(4, "big") + bytes(1 << 16),
    "half a message": framed(b'["hello", [1, 2, 3')[:12],
    "no JSON": framed(b"{]"),
    "no UTF-8": framed(b"\xff\xfe"),
    "deep": framed(b"[" * 2000),
    "no message": framed(b"17"),
    "another message": framed(b'["value", 1]'),
    "two": framed(b'["hello", []]') * 2,
    "no proof": framed(b'["hello", [1, 2, 3, "", "", "", "0000"]]'),
    "proof of another kind": framed(b'["hello", [1, 2, 3, "", "", "", null]]'),
    "wrong kinds": framed(b'["hello", [{}, 2, [], "", "", "", "0000"]]'),
    "a pickle": framed(pickle.dumps(Runs())),
}


@pytest.fixture
def waiting() -> Iterator[Forked]:
    """A job of two of which rank 0 listens."""
    with Forked(2, MAKE, ranks=(0,)) as ranks:
        while ranks.address() not in addresses():
            assert ranks.processes[0].poll() is None
            time.sleep(0.005)
        yield ranks


def connection(ranks: Forked, rank: int | None = None) -> socket.socket:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    of_a_rank = "" if rank is None else f"-{rank}"
    end.connect(ranks.address().replace("@", "\0") + of_a_rank)
    return end


def go_on(ranks: Forked) -> None:
    """The other rank comes, and both make their collective before their timeout."""
    ranks.start(1)
    assert ranks.outputs() == ["made"] * 2


def test_what_strangers_say(waiting: Forked) -> None:
    """All at once, and their connections stay open."""
    ends = []
    for said in SAID.values():
        ends.append(connection(waiting))
        ends[-1].sendall(said)
    go_on(waiting)
    for end in ends:
        end.close()


@pytest.mark.long
def test_strangers_that_close_at_once(waiting: Forked) -> None:
    for said in SAID.values():
        with connection(waiting) as end:
            end.sendall(said)
    go_on(waiting)


@pytest.mark.long
def test_one_that_calls_all_the_time(waiting: Forked) -> None:
    """It keeps some of its connections; more than a process may have files."""
    script = f"""
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
kept = []
print("calls", flush=True)
while True:
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        end.connect({waiting.address().replace("@", chr(0))!r})
    except OSError:
        continue
    kept = [*kept[-3000:], end]
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as caller:
        try:
            assert caller.stdout is not None
            assert caller.stdout.readline() == b"calls\n"
            go_on(waiting)
        finally:
            caller.kill()


def test_a_rank_with_few_files_left() -> None:
    script = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n" + MAKE
    with Forked(2, script, ranks=(0,)) as ranks:
        while ranks.address() not in addresses():
            time.sleep(0.005)
        ends = [connection(ranks) for _ in range(60)]
        go_on(ranks)
        for end in ends:
            end.close()


def test_strangers_at_the_address_of_a_rank(waiting: Forked) -> None:
    """They do not pass for a second rank 0."""
    ends = []
    for said in SAID.values():
        ends.append(connection(waiting, 0))
        ends[-1].sendall(said)
    go_on(waiting)
    for end in ends:
        end.close()


@pytest.mark.parametrize("said", ["nothing", "no JSON", "another message", "a pickle"])
def test_one_that_has_the_address_and_not_the_key(said: str) -> None:
    """A rank that is answered wrongly says so; one that is not answered waits, as for rank 0."""
    script = MAKE.replace("20", "1") if said == "nothing" else MAKE
    with Forked(2, script, ranks=()) as ranks:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squat:
            squat.bind(ranks.address().replace("@", "\0"))
            squat.listen()
            ranks.start(1)
            end, _ = squat.accept()
            with end:
                end.sendall(SAID[said])
                if said == "another message":
                    assert b"hello" in end.recv(4096)
                    end.sendall(framed(b'["welcome", "0000"]'))
                text = ranks.outputs(1)[0]
        if said == "nothing":
            assert text.startswith("StallError: rank 1 has waited ")
        else:
            assert text.startswith("RuntimeError: process ")
            assert "does not know its key" in text
            assert "WAGMA_JOB" in text


@pytest.mark.long
def test_a_user_namespace_that_knows_no_users() -> None:
    """There others have this user's number: only a name of the job that they cannot guess helps."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--user", "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    numbers = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    for name, expected in (
        ({}, "RuntimeError: in this user namespace other users have this process's number"),
        ({"WAGMA_JOB": "5ca1ab1e"}, "StallError: "),
    ):
        done = subprocess.run(
            [unshare, "--user", sys.executable, "-c", PRELUDE + MAKE.replace("20", "0.1")],
            env=clean_environment() | numbers | name,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(expected), done.stderr
