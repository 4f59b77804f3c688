"""The last events of a handle: as text, beside an error, and written however a program ends."""

import json
import logging
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import blocks
from ranks import pair

from wagma.collectives import Handle, Segment, StallError

PRELUDE = """
import os, signal, sys
import numpy as np
from wagma.collectives import Handle, Segment
x = np.ones(4, np.float32)
handle = Handle(Segment.create({"size": 1, "count": 4}), 0, name="model")
handle.allreduce(x)
"""


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", PRELUDE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"WAGMA_TRACE": str(folder), "PATH": "", "PYTHONPATH": ":".join(sys.path)},
    )


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("handle.close()", 0),
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('training failed')", 1),
        ("with handle: raise RuntimeError('training failed')", 1),
        ("if os.fork() == 0: sys.exit()\nos.wait()", 0),
    ],
)
def test_written_at_every_end(script: str, status: int, tmp_path: Path) -> None:
    done = run(script, tmp_path)
    assert done.returncode == status, done.stderr
    (path,) = tmp_path.iterdir()
    assert path.name == "model.rank-0.json"
    content = json.loads(path.read_text())
    assert [each["name"] for each in content["traceEvents"] if each["ph"] == "X"] == ["call"]


def test_not_written_when_killed(tmp_path: Path) -> None:
    done = run("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "limit", "said"),
    [("/proc/none", "", "WAGMA_TRACE=/proc/none"), ("", "few", "WAGMA_TRACE_LIMIT=few")],
)
def test_wrong_environment(
    folder: str, limit: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAGMA_TRACE", folder or str(tmp_path))
    monkeypatch.setenv("WAGMA_TRACE_LIMIT", limit)
    with pytest.raises(ValueError, match=re.escape(said)):
        pair(count=1)


def test_fail_within_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when two threads call it: the second has released the handle when the first goes on."""
    folder = tmp_path / "traces"
    folder.mkdir()
    monkeypatch.setenv("WAGMA_TRACE", str(folder))
    handle = Handle(Segment.create({"size": 1, "count": 4}), 0)
    folder.rmdir()
    closed = []

    class Fails(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            handle.fail()
            closed.append((handle.closed, record.levelname))

    log = logging.getLogger("wagma")
    monkeypatch.setattr(log, "handlers", [Fails()])
    handle.fail()
    assert closed == [(True, "WARNING")]
    assert handle.closed


# ---- the last events -----------------------------------------------------------------------------


def test_a_stall_is_logged_with_the_last_events(
    x: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = pair(timeout=2.7)
    with caplog.at_level(logging.ERROR, "wagma"), pytest.raises(StallError) as stalled:
        first.allreduce(x)
    assert "\n" not in str(stalled.value)
    (record,) = caplog.records
    lines = record.getMessage().splitlines()
    assert lines[0] == f"rank 0 broke: {stalled.value}"
    assert lines[1].startswith("rank 0 of 2: in no call")
    assert "version 0: wait for quorum" in lines[-3]
    assert lines[-1].endswith("version 0: error: stalled")
    assert first.dump_state().splitlines()[-1].endswith("version 0: error: stalled")
    second.fail()
    first.fail()
    assert first.dump_state().splitlines()[-1].endswith("version 0: error: stalled")


def test_a_look_at_a_rank_that_waits(x: np.ndarray) -> None:
    """From another thread, while the call has released the GIL."""
    first, second = pair()
    thread = threading.Thread(target=first.allreduce, args=(x,))
    thread.start()
    seen = ""
    while "waits for" not in seen:
        seen = first.dump_state()
    assert re.match(r"rank 0 of 2: in version 0 for \d+\.\d+ s, waits for quorum; ", seen)
    second.allreduce(x.copy())
    thread.join()
    assert first.dump_state().startswith("rank 0 of 2: in no call;")
    for handle in (first, second):
        handle.close()


def test_the_thread_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("timeline.md", "python")
    assert "seconds=60.0" in code
    handle = Handle(Segment.create({"size": 1, "count": 3}), 0)
    names: dict[str, Any] = {"coll": handle}
    exec(code.replace("seconds=60.0", "seconds=0.01"), names)
    printed = ""
    while printed.count("rank 0 of 1: in no call") < 2:
        printed += capsys.readouterr().out
    names["finished"].set()
    (watcher,) = (thread for thread in threading.enumerate() if thread.name.endswith("(watch)"))
    watcher.join()
    handle.close()
