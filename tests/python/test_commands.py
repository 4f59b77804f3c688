"""What `make test` runs: commands that fail, take long, or wait behind others."""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import parts
import pytest
from commands import Behind, Process, execute, execute_all, running
from parts import Command

ENVIRONMENT = dict(os.environ)
LONG_S = 30.0
BURN = "import time; start = time.process_time()\nwhile time.process_time() - start < 0.2: pass"


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "LOGS", tmp_path)
    return tmp_path


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as one:
        yield one


def python(name: str, program: str, **options: bool) -> Command:
    return Command(name, [sys.executable, "-S", "-c", program], LONG_S, **options)


def started(behind: Behind) -> Process:
    deadline = time.monotonic() + LONG_S
    while behind.process is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return behind.process


def test_a_command_says_why_it_failed():
    assert execute(Command("good", ["true"], LONG_S), ENVIRONMENT).reason == ""
    assert execute(Command("bad", ["false"], LONG_S), ENVIRONMENT).reason == "exit status 1"
    assert "none-such" in execute(Command("none", ["none-such"], LONG_S), ENVIRONMENT).reason


def test_a_command_that_takes_long_is_ended_with_what_it_started(logs):
    slow = Command("slow", ["sh", "-c", "sleep 60 & echo $!; wait"], 0.3)
    assert execute(slow, ENVIRONMENT).reason == "not done after 0.3 s"
    sleeper = Path("/proc", (logs / "slow.log").read_text().strip(), "stat")
    assert not sleeper.exists() or ") Z " in sleeper.read_text()
    assert not running


def test_time_of_children_counts():
    burn = Command("burn", ["sh", "-c", f"{sys.executable} -S -c '{BURN}'; true"], LONG_S)
    assert 0.2 <= execute(burn, ENVIRONMENT).cpu_seconds < LONG_S


def test_behind_others_it_has_idle_cores_only(logs, pool):
    policy = python("policy", "import os; print(os.sched_getscheduler(0))", behind=True)
    behind = Behind([policy], ENVIRONMENT, pool)
    ((command, ended),) = execute_all([policy], ENVIRONMENT, behind)
    assert (command, ended.reason) == (policy, "")
    assert int((logs / "policy.log").read_text()) == os.SCHED_IDLE


def test_nothing_runs_behind_what_is_alone(pool):
    ends = python("ends", "import time; time.sleep(0.5)", behind=True)
    then = python("then", "print()", behind=True)
    behind = Behind([ends, then], ENVIRONMENT, pool)
    # What is stopped is seen so when it had its core next; what is not stopped ends.
    look = f"""
import os, time
while ") T " not in open("/proc/{started(behind).pid}/stat").read():
    time.sleep(0.01)
time.sleep(0.7)
assert not os.path.exists({str(then.logs()[0])!r})
"""
    commands = [python("alone", look, alone=True), ends, then]
    found = execute_all(commands, ENVIRONMENT, behind)
    assert [(command, ended.reason) for command, ended in found] == [(c, "") for c in commands]
