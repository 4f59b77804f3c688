"""Run the commands of `make test`: those that fail, take long, or are interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import parts
import pytest
import run
from commands import Runner
from parts import Command

ENVIRONMENT = dict(os.environ)
LONG_S = 60.0
BURN = "import time; start = time.process_time()\nwhile time.process_time() - start < 0.2: pass"


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "LOGS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    return tmp_path


def reasons(*commands: Command) -> list[str]:
    """Why each failed, run by themselves."""
    with Runner(ENVIRONMENT) as runner:
        return [ended.reason for _, ended in runner.run(commands)]


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


@pytest.mark.long
def test_a_command_that_takes_long_is_ended_with_what_it_started(logs):
    slow = Command("slow", ["sh", "-c", "sleep 60 & echo $!; wait"], 8)  # 8 s to say its number
    assert reasons(slow) == ["not done after 8 s"]
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


@pytest.mark.parametrize("lanes", [1, 2])
def test_an_interrupt_ends_what_runs_and_what_would_follow(lanes, logs):
    slow = {
        part: [Command(f"{part}{i}", ["sleep", "60"], 90, lanes=lanes) for i in range(lanes + 1)]
        for part in "abc"
    }

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def send() -> None:
        deadline = time.monotonic() + LONG_S / 2
        while len(list(logs.iterdir())) < 2 * lanes and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    start = time.monotonic()
    sender = threading.Thread(target=send)
    try:
        with pytest.raises(KeyboardInterrupt):
            sender.start()
            run.run_parts(slow, [], 2, ENVIRONMENT)
    finally:
        sender.join()
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 45


def test_parts_run_beside_each_other_and_the_last_after_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def meet(name: str, other: str) -> list[Command]:
        script = f"touch {name}; until [ -e {other} ]; do sleep 0.01; done; sleep 0.2"
        script = f"cd {tmp_path}; {script}; touch {name}-ended; echo 1 passed"
        return [Command(name, ["sh", "-c", script], LONG_S)]

    script = f"cd {tmp_path}; ls a-ended b-ended; echo 1 passed"
    last = Command("alone", ["sh", "-c", script], LONG_S)
    met = {"a": meet("a", "b"), "b": meet("b", "a"), "c": [Command("c", ["true"], LONG_S)]}
    results = run.run_parts(met, [last], 2, ENVIRONMENT)
    reasons = {name: result.reasons for name, result in results.items()}
    assert reasons == {"a": [], "b": [], "c": ["c: 0 passed"], "alone": []}
    assert "a-ended" in (tmp_path / "alone.log").read_text()
    assert "---- c.log" in capsys.readouterr().out


def names_in(part: list[parts.Command]) -> list[str]:
    return [command.name for command in part if not command.name.endswith("-build")]


def test_every_test_is_in_the_short_run_or_in_the_rest():
    mpi = parts.Launcher("mpich", ["mpiexec"])
    short, rest = (parts.all_parts(mpi, short) for short in (True, False))
    assert list(short) == list(rest)
    for flavour in ("c", "asan", "tsan"):
        names = [set(names_in(part[flavour])) for part in (short, rest)]
        assert names[0]
        assert not names[0] & names[1]
    for part in ("mpi", "messages"):
        on_eight = [c.argv for c in rest[part] if c.ranks == 8]
        weights = "tests/collectives/test_weights.py"
        whole = [argv for argv in on_eight if weights in argv and "-m" not in argv]
        marked = [argv for argv in on_eight if "every_size" in argv]
        assert whole or [argv[-1] for argv in marked] == [weights]
    tests = {f"c-{path.stem}" for path in (parts.ROOT / "tests/engine").glob("test_*.c")}
    assert {name for part in (short, rest) for name in names_in(part["c"])} == tests


def test_without_a_cxx_compiler_a_test_that_needs_one_is_skipped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parts, "CXX", "no-such-compiler")
    build, *runs = parts.c_part("c", True, 1)
    assert "build/c/test_reduce" in build.argv
    assert "build/c/test_reduce_cuda" not in build.argv
    (skipped,) = [run for run in runs if run.name == "c-test_reduce_cuda"]
    assert skipped.argv == ["echo", "skipped: the C++ compiler no-such-compiler was not found"]


@pytest.mark.parametrize("flavour", ["tsan", "msan"])
def test_a_short_c_test_that_the_flavour_has_not(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    (tmp_path / "tests/engine").mkdir(parents=True)
    test = tmp_path / "tests/engine/test_it.c"  # starts no threads
    test.write_text(f"/* short run: c {flavour} */\n")
    with pytest.raises(ValueError, match=f"test_it.c: the short run has it not for {flavour}"):
        parts.c_part("c", True, 1)


def test_files_say_how_they_are_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    (tmp_path / "tests/a").mkdir(parents=True)
    marks = {"one": "launch, alone", "two": "launch, alonely", "three": "alone", "four": "mpi(2)"}
    for name, text in marks.items():
        lines = [f"@pytest.mark.{mark}" for mark in text.split(", ")]
        (tmp_path / f"tests/a/test_{name}.py").write_text("\n".join(lines))
    one, two, three, four = (f"tests/a/test_{name}.py" for name in marks)
    found = [parts.launched(part) for part in ("launch", "mpi", "python", "hosts")]
    assert found == [[one, two], [four], [three], []]
    assert parts.marked([one, two], "alone") == [one]

    mpich, openmpi = (parts.Launcher(name, []) for name in ("mpich", "openmpi"))
    (crowd,) = (c.argv for c in parts.pytest_part("a", mpich, True, 1, "launch"))
    assert crowd[-2:] == [one, two]
    assert "not long and not alone" in crowd
    (alone,) = (c.argv for c in parts.alone(mpich, True, ("c", "launch", "python")))
    assert alone[-4:] == ["-m", "not long and alone", one, three]
    (alone,) = (c.argv for c in parts.alone(openmpi, False, ("launch",)))
    assert alone[-3:] == ["-m", "long and not without_mpi and alone", one]
    assert parts.alone(mpich, True, ("mpi", "hosts")) == []

    (tmp_path / one).write_text("".join(f"@pytest.mark.{launch}\n" for launch in ("mpi", "hosts")))
    with pytest.raises(ValueError, match=r"test_one.py: is of several parts: hosts, mpi"):
        parts.launched("mpi")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "no:pytest_mpi"], ["launch"]),
        (["-p", "no:pytest_mpi", "oracle/test_oracle.py"], ["oracle"]),
        (["--with-mpi"], ["mpi"]),
    ],
)
def test_a_run_imports_what_it_can_launch(
    words: list[str], expected: list[str], tmp_path: Path
) -> None:
    """What is named is collected, whatever its launch."""
    shutil.copy(parts.ROOT / "tests/conftest.py", tmp_path)
    for launch in ("launch", "mpi", "oracle"):
        (tmp_path / launch).mkdir()
        lines = ["import pytest", f"mark = pytest.mark.{launch}", "def test_it(): pass"]
        (tmp_path / f"{launch}/test_{launch}.py").write_text("\n".join(lines))
    support = f"{parts.ROOT}/tests:{parts.ROOT}/tests/support"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, *words],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": support},
        capture_output=True,
        text=True,
        check=True,
    )
    collected = [line for line in ran.stdout.splitlines() if "::" in line]
    assert collected == [f"{launch}/test_{launch}.py::test_it" for launch in expected]
