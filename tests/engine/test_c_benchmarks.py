"""The benchmarks in C link by the command in their first lines, and the quick one runs."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^ \*     (g?cc .*?) && \./a\.out", re.MULTILINE | re.DOTALL)
QUICK = {"bench_trace"}  # the others take a minute of both cores, or need two that idle


@pytest.mark.long
@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("tests/engine/bench_*.c")), ids=lambda path: path.stem
)
def test_its_command_works(path: Path, tmp_path: Path) -> None:
    found = COMMAND.search(path.read_text())
    assert found, "no command"
    command = found[1].replace("\\\n *", "").replace("-O3", "-O0")  # in a third of the time
    program = tmp_path / "bench"
    then = f" && {program}" if path.stem in QUICK else ""
    done = subprocess.run(
        ["bash", "-c", f"{command} -o {program}{then}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("a call of one rank, 4 bytes, with a timeline" in done.stdout) == bool(then)
