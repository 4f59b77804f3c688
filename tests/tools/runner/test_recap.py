"""Repeat the tests that failed after all other output."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import parts
import run
from commands import Runner
from parts import Command
from recap import failures, of_log

TESTS = Path(__file__).parents[2]
OUTPUT = """\
tests/test_a.py::test_one FAILED [ 50%]
ERROR    root:a.py:3 what a logger said
FAILED tests/test_a.py::test_one - AssertionError: assert 1 == 2
ERROR tests/test_a.py::test_two - OSError: no
FAILED tests/test_a.py::test_one - AssertionError: assert 1 == 2
          FAILED mpi-2: exit status 1
2 failed
"""
FAILURES = [
    "FAILED tests/test_a.py::test_one - AssertionError: assert 1 == 2",
    "ERROR tests/test_a.py::test_two - OSError: no",
    "FAILED mpi-2: exit status 1",
]


def test_lines_that_name_tests_come_once():
    assert failures(OUTPUT.splitlines()) == of_log(OUTPUT.splitlines()) == FAILURES
    assert failures(["FAILED " + "x" * 1000]) == ["FAILED " + "x" * 293]


def test_a_log_without_them_has_its_last_lines():
    assert of_log([str(n) for n in range(20)]) == [str(n) for n in range(10, 20)]
    many = of_log([f"FAILED test_{n}" for n in range(100)])
    assert many[59:] == ["FAILED test_59", "... and 40 more"]


def test_all_ranks_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "LOGS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    (tmp_path / "mpi-2.0.log").write_text("FAILED test_a - x\n1 failed\n")
    (tmp_path / "mpi-2.1.log").write_text("FAILED test_a - x\nFAILED test_b - y\n2 failed\n")
    with Runner(dict(os.environ)) as runner:
        result = run.run_part([Command("mpi-2", ["false"], 60, ranks=2)], runner)
    assert list(dict.fromkeys(result.failures)) == ["FAILED test_a - x", "FAILED test_b - y"]


def test_the_summary_has_the_reason_behind_a_long_name(tmp_path):
    shutil.copy(TESTS / "conftest.py", tmp_path)
    name = "test_" + "long_" * 20
    (tmp_path / "test_it.py").write_text(f"def {name}():\n    assert 0, 'the reason'\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER")}
    environment["PYTHONPATH"] = f"{TESTS}:{TESTS}/support"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert failures(ran.stdout.splitlines()) == [
        f"FAILED test_it.py::{name} - AssertionError: the reason"
    ]


MAKE = """\
#!/bin/sh
case "$*" in
*lint*) echo "a line of lint"; exit 1;;
"test") cat output; exit 2;;
*) echo "made $*";;
esac
"""


def test_it_is_the_end_of_ci(tmp_path):
    """The script with another make: two parts fail, one of them beside another."""
    for folder in (".ci", "tests", "bin"):
        (tmp_path / folder).mkdir()
    shutil.copy(TESTS.parent / ".ci/run", tmp_path / ".ci")
    shutil.copy(TESTS / "recap.py", tmp_path / "tests")
    (tmp_path / "output").write_text(OUTPUT)
    for tool, text in (("make", MAKE), ("clang", "#!/bin/sh\necho clang\n")):
        (tmp_path / "bin" / tool).write_text(text)
        (tmp_path / "bin" / tool).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    command = [str(tmp_path / ".ci/run")]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 1, ran.stderr
    lines = ran.stdout.splitlines()
    assert "made demo" in lines
    assert "made test-slurm" in lines
    recap = lines[lines.index("== failed: lint") :]
    failed = [f"   {line}" for line in FAILURES]
    assert recap[:-1] == ["== failed: lint", "   a line of lint", "== failed: test", *failed]
    assert recap[-1].endswith(": lint test")
