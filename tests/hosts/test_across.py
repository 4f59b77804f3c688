"""The command by which users run something across emulated hosts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.hosts

HERE = Path(__file__).parent
MIB = 1 << 20


def across(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "across.py"), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.usefixtures("machine")
def test_ranks_on_every_host_and_what_crossed() -> None:
    program = [str(HERE / "exchange.py"), str(MIB // 8), "5"]
    done = across("--hosts", "2", "--per-host", "2", "python", *program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["h1", 2], ["h1", 2], ["h2", 2], ["h2", 2]]
    for name in ("h1", "h2"):
        line = next(line for line in done.stderr.splitlines() if line.startswith(f"{name}: "))
        received, sent = (int(word) for word in line.split() if word.isdecimal())
        assert min(received, sent) >= 5 * MIB


@pytest.mark.usefixtures("machine")
def test_the_login_node_reaches_the_hosts_and_the_exit_status_is_given() -> None:
    script = 'hostname; "$0" h2 hostname; exit 5'
    done = across("--login", "sh", "-c", script, str(HERE / "enter"))
    assert (done.returncode, done.stdout) == (5, "login\nh2\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command"),
        pytest.param(["--hosts", "0", "true"], "--hosts is 1 to 63", marks=pytest.mark.long),
        (["--hosts", "64", "true"], "--hosts is 1 to 63"),
        (["--delay-us", "-5", "true"], "--delay-us -5: microseconds, 0 or more"),
        pytest.param(
            ["--rate-mbit", "-1", "true"],
            "--rate-mbit -1.0: megabits per second",
            marks=pytest.mark.long,
        ),
        pytest.param(
            ["--loss", "7", "true"], "--loss 7.0: the share of frames", marks=pytest.mark.long
        ),
        (["--loss", "nan", "true"], "--loss nan: the share of frames"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str) -> None:
    done = across(*words)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr
