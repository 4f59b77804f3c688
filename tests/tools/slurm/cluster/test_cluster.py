"""The private Slurm itself: it leaves nothing, however the process that uses it ends."""

import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import READY_S, Cluster, await_result

pytestmark = pytest.mark.slurm

HERE = Path(__file__).resolve().parent
USER = """
import sys
sys.path.insert(0, {here!r})
from cluster import Cluster
with Cluster(nodes=1, isolated={isolated}) as cluster:
    job = cluster.submit("#!/bin/bash\\nsleep 1000.{mark} & setsid sleep 2000.{mark} & wait\\n")
    job.await_state("RUNNING", seconds=30)
    print(cluster.folder, flush=True)
    sys.stdin.read()
    {ends}
"""


def running(mark: str) -> list[str]:
    """The processes that have a text in their command line."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if mark in line]


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("end", ["exception", "SIGKILL"])
def test_nothing_is_left(slurm: Cluster, isolated: bool, end: str) -> None:
    mark = f"{slurm.folder.name.encode().hex()[-12:]}{isolated:d}"
    mark = str(int(mark, 16))  # sleep takes numbers
    script = USER.format(here=str(HERE), isolated=isolated, mark=mark, ends="1 / 0")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as user:
        assert user.stdin is not None and user.stdout is not None
        folder = Path(user.stdout.readline().strip())
        await_result(lambda: len(running(mark)) >= 2, READY_S, lambda: str(running(mark)))
        assert folder.is_dir()
        if end == "SIGKILL":
            user.send_signal(signal.SIGKILL)
        user.stdin.close()
        user.wait(timeout=READY_S)

    def gone() -> bool:
        return not folder.exists() and not running(mark) and not running(folder.name)

    await_result(gone, READY_S, lambda: f"{running(mark)} {running(folder.name)} {folder}")
