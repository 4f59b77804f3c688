"""What `make test` runs: commands that fail, take long, or wait behind others."""

import os
import signal
import sys
import time
from pathlib import Path

import commands
import parts
import pytest
from commands import Process, Runner
from parts import Command

ENVIRONMENT = dict(os.environ)
LONG_S = 60.0
BURN = "import time; start = time.process_time()\nwhile time.process_time() - start < 0.2: pass"


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "LOGS", tmp_path)
    return tmp_path


def python(name: str, program: str, **options: bool) -> Command:
    return Command(name, [sys.executable, "-S", "-c", program], LONG_S, **options)


def reasons(*commands: Command) -> list[str]:
    """Why each failed, run by themselves."""
    behind = [command for command in commands if command.behind]
    with Runner(ENVIRONMENT, behind) as runner:
        return [ended.reason for _, ended in runner.run(commands)]


def started(runner: Runner) -> Process:
    """The first that runs behind."""
    deadline = time.monotonic() + LONG_S
    while runner.process_behind is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return runner.process_behind


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_command_says_why_it_failed():
    words = ("true", "false", "none-such")
    good, bad, none = reasons(*(Command(word, [word], LONG_S) for word in words))
    assert (good, bad) == ("", "exit status 1")
    assert "none-such" in none


def test_a_command_behind_says_why_it_failed():
    found = reasons(*(Command(word, [word], LONG_S, behind=True) for word in ("false", "true")))
    assert found == ["exit status 1", ""]


def test_a_command_that_takes_long_is_ended_with_what_it_started(logs):
    slow = Command("slow", ["sh", "-c", "sleep 60 & echo $!; wait"], 2)
    assert reasons(slow) == ["not done after 2 s"]
    sleeper = int((logs / "slow.log").read_text())
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline and runs(sleeper):
        time.sleep(0.01)
    assert not runs(sleeper)


def test_time_of_children_counts():
    burn = Command("burn", ["sh", "-c", f"{sys.executable} -S -c '{BURN}'; true"], LONG_S)
    with Runner(ENVIRONMENT) as runner:
        ((command, ended),) = runner.run([burn])
    assert command is burn
    assert 0.2 <= ended.cpu_seconds < LONG_S


def test_behind_others_it_has_idle_cores_only():
    idle = "import os, time\nwhile os.sched_getscheduler(0) != os.SCHED_IDLE: time.sleep(0.01)"
    assert reasons(python("idle", idle, behind=True)) == [""]


def test_nothing_runs_behind_what_is_undisturbed():
    ends = python("ends", "import time; time.sleep(2)", behind=True)
    with Runner(ENVIRONMENT, [ends]) as runner:
        # What is stopped is seen so when it had its core next; what is not stopped ends.
        stat = f"/proc/{started(runner).pid}/stat"
        look = f"import time\nwhile ') T ' not in open({stat!r}).read(): time.sleep(0.01)"
        both = [python("look", look, undisturbed=True), ends]
        assert [ended.reason for _, ended in runner.run(both)] == ["", ""]


def test_nothing_starts_behind_what_is_undisturbed():
    first = Command("first", ["sleep", "60"], 90, behind=True)
    then = python("then", "print()", behind=True)
    with Runner(ENVIRONMENT, [first, then]) as runner:
        process = started(runner)
        with runner.undisturbed():
            os.killpg(process.pid, signal.SIGKILL)
            assert runner.behind["first"].result(timeout=LONG_S).reason == "exit status -9"
            time.sleep(0.3)
            assert not then.logs()[0].exists()
        assert [ended.reason for _, ended in runner.run([then])] == [""]


def test_a_pause_is_no_time(monkeypatch):
    # Of the idle class it could wait for longer than that.
    monkeypatch.setattr(commands, "take_idle_cores_only", lambda _: None)
    short = Command("short", ["sleep", "0.5"], 3, behind=True)
    with Runner(ENVIRONMENT, [short]) as runner:
        started(runner)
        with runner.undisturbed():
            time.sleep(3.5)
        assert [ended.reason for _, ended in runner.run([short])] == [""]


@pytest.mark.parametrize("undisturbed", [False, True])
def test_an_interrupt_ends_what_runs_and_what_would_follow(undisturbed):
    sleeps = [Command(f"sleep{i}", ["sleep", "60"], 90, behind=True) for i in range(2)]
    front = Command("front", ["sleep", "60"], 90, undisturbed=undisturbed)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), Runner(ENVIRONMENT, sleeps) as runner:
            started(runner)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            list(runner.run([front, *sleeps]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 45
    assert not runner.running
    assert runner.behind["sleep1"].result().reason == "interrupted"


def test_behind_and_undisturbed_exclude_each_other():
    with pytest.raises(ValueError, match="both would wait for itself"):
        Command("both", ["true"], 1, behind=True, undisturbed=True)


def test_what_starts_threads_is_under_the_thread_sanitizer(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "test_engine_killed"
    assert f"tsan-{name}" in [command.name for command in parts.c_part("tsan", 1)]
    monkeypatch.setattr(parts, "ONE_THREAD", parts.ONE_THREAD | {name})
    with pytest.raises(ValueError, match=f"{name} starts threads"):
        parts.c_part("tsan", 1)
