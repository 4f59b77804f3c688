"""Numbers in the engine's messages, in a program that prints them with a decimal comma."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LOCALE = """
LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3;3
END LC_NUMERIC
"""
SCRIPT = """
import json, locale, logging, os, sys
import numpy as np
from wagma.collectives import HandleError, StallError, _engine

logging.basicConfig(format="%(message)s", stream=sys.stdout)
locale.setlocale(locale.LC_NUMERIC, "commas")
assert locale.str(0.5) == "0,5"
try:
    _engine.check_options({"size": 2, "count": 1, "grace": 2.5e9})
except ValueError as error:
    print(error)
options = {"size": 2, "count": 3, "timeout": 0.15, "stall_warning": 0.1, "dtype": 0, "quorum": 2}
options |= {"group_size": 2}
segment = _engine.Segment.create(options)
if os.fork() == 0:
    import time
    other = _engine.Handle(segment, 1)
    time.sleep(1)
    os._exit(0)
handle = _engine.Handle(segment, 0, name="x")
for _ in range(2):
    try:
        handle.allreduce(np.zeros(3, np.float32))
    except (StallError, HandleError) as error:
        print(type(error).__name__, error)
print(handle.dump_state())
handle.close()
os.wait()
for path in os.scandir(os.environ["WAGMA_TRACE"]):
    print("trace", len(json.load(open(path))["traceEvents"]) > 0)
"""


@pytest.fixture
def commas(tmp_path: Path) -> dict[str, str]:
    """The environment in which there is a locale `commas`."""
    if shutil.which("localedef") is None:
        pytest.skip("no localedef makes a locale")
    (tmp_path / "source").write_text(LOCALE)
    subprocess.run(
        [
            "localedef",
            "-c",
            "--no-archive",
            "-i",
            str(tmp_path / "source"),
            str(tmp_path / "commas"),
        ],
        capture_output=True,
        check=False,  # it warns of all that is not defined
        timeout=60,
    )
    return {**os.environ, "LOCPATH": str(tmp_path), "WAGMA_TRACE": str(tmp_path / "traces")}


def test_numbers_have_points(commas: dict[str, str]) -> None:
    Path(commas["WAGMA_TRACE"]).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=commas,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "grace is 2.5e+09: it must be" in done.stdout
    waits = "at version 0 (phase quorum) for rank 1, which is alive and has not called yet"
    assert "rank 0 (x) has waited 0.1" in done.stdout, done.stdout
    assert f" s {waits} (timeout 0.15 s)" in done.stdout, done.stdout
    assert "HandleError the handle failed earlier: rank 0 has waited 0." in done.stdout
    assert re.search(r"^ +0\.\d{6} s ago  version 0: call broke, \d+\.\d us$", done.stdout, re.M)
    assert "trace True" in done.stdout
