"""Processes that are really stopped and killed; all of them are ended by a time limit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from wagma import inject
from wagma.inject import processes

LIVENESS_S = 60.0
STOPPED_S = 1.0
LOOKED_AT_S = 10.0  # stopped so long that this process, itself stopped for a while, still sees it


@contextmanager
def running(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()  # also ends a stopped one
        process.communicate()


def wait_for_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + LIVENESS_S
    while processes.state_of(pid) != state:
        assert time.monotonic() < deadline, f"process {pid} is never in state {state}"
        time.sleep(0.001)


RANK = """
import sys, threading, time
from wagma import inject
imbalance = inject.parse(sys.argv[1], 2)
gap, last, done = 0.0, time.monotonic(), False
def tick():
    global gap, last
    while not done:
        now = time.monotonic()
        gap, last = max(gap, now - last), now
        time.sleep(0.001)
thread = threading.Thread(target=tick)
thread.start()
for step in range(4):
    began = time.monotonic()
    imbalance.inject(int(sys.argv[2]), step)
    print(step, time.monotonic() - began, flush=True)
done = True
thread.join()
print("gap", gap)
"""


def seconds_of(output: str) -> dict[str, float]:
    return {
        step: float(seconds)
        for step, seconds in (line.split() for line in output.split("\n") if line)
    }


def test_a_rank_is_stopped_with_its_threads_and_continued() -> None:
    with running(RANK, f"stop:1:2:{STOPPED_S}", "1") as process:
        output, _ = process.communicate(timeout=LIVENESS_S)
    seconds = seconds_of(output)
    assert list(seconds) == ["0", "1", "2", "3", "gap"]
    assert seconds["2"] >= STOPPED_S
    assert seconds["gap"] >= STOPPED_S, "another thread went on"
    assert process.returncode == 0


def test_the_other_ranks_are_not_stopped() -> None:
    with running(RANK, "stop:1:2:3600,kill:1:3,one-server:0:0.05:3", "0") as process:
        output, _ = process.communicate(timeout=LIVENESS_S)
    seconds = seconds_of(output)
    assert process.returncode == 0
    assert min(seconds["0"], seconds["3"]) >= 0.05
    assert max(seconds.values()) < 3600


def test_a_rank_is_killed() -> None:
    with running(RANK, "kill:1:2", "1") as process:
        output, _ = process.communicate(timeout=LIVENESS_S)
    assert process.returncode == -signal.SIGKILL
    assert list(seconds_of(output)) == ["0", "1"]


def test_a_stopped_rank_can_be_killed() -> None:
    """What would continue it later finds that it has ended, and ends too."""
    with running(RANK, f"stop:1:2:{LOOKED_AT_S}", "1") as process:
        wait_for_state(process.pid, "T")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.communicate(timeout=LIVENESS_S)
    assert process.returncode == -signal.SIGKILL
    (helper,) = (int(child) for child in children)
    deadline = time.monotonic() + LIVENESS_S
    with suppress(ProcessLookupError):
        while processes.state_of(helper) != "Z":
            assert time.monotonic() < deadline, "the helper goes on"
            time.sleep(0.001)


def test_another_process_is_suspended_and_resumed() -> None:
    code = "while True: print(input(), flush=True)"
    with running(code) as process:
        inject.suspend(process.pid)
        assert processes.state_of(process.pid) == "T"
        inject.suspend(process.pid)  # once more is no error
        inject.resume(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "on\n"


def test_processes_that_have_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        wait_for_state(process.pid, "Z")
        with pytest.raises(ProcessLookupError, match=f"process {process.pid} has ended"):
            inject.suspend(process.pid)
    for what in (inject.suspend, inject.resume, processes.state_of):
        with pytest.raises(ProcessLookupError):
            what(process.pid)


def test_a_helper_stops_only_the_process_that_started_it() -> None:
    with running("input()") as process:
        helper = [sys.executable, processes.__file__, str(process.pid), "3600"]
        done = subprocess.run(helper, timeout=LIVENESS_S, capture_output=True, check=False)
        assert done.returncode != 0
        assert b"not its parent" in done.stderr
        assert processes.state_of(process.pid) != "T"


def test_a_stop_that_does_not_happen_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no Python here >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(broken))
    with pytest.raises(RuntimeError, match=r"not stopped for 0\.5 s: no Python here"):
        inject.Stop(0, 0, 0.5).strike()
