"""Run one step of a build quietly, but never in silence.

    python buildtools/step.py LABEL COMMAND [ARGUMENT...]

The label is printed when the step begins, and its time at the end. In between, a line every few
seconds shows the command's latest output. If the command fails, all of its output is printed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence

PERIOD_S = 8.0  # between two progress lines
WIDTH = 78  # of a progress line


def run(label: str, command: Sequence[str], period: float = PERIOD_S) -> int:
    """Run a command and return its exit status.

    Args:
        label: what the step does.
        command: program and arguments.
        period: seconds between two lines while the command runs.
    """
    start = time.monotonic()
    say(f"{label} ...")
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        reader = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(period)
            if reader.is_alive():
                say(f"  {time.monotonic() - start:4.0f} s  {_last(said)}"[:WIDTH].rstrip())
    status = process.returncode
    if status:
        say("".join(said).rstrip())
        say(f"{label}: failed with status {status} after {time.monotonic() - start:.0f} s")
    else:
        say(f"{label}: done in {time.monotonic() - start:.0f} s")
    return status


def _last(said: Sequence[str]) -> str:
    lines = (line.strip() for line in reversed(said))
    return next((line for line in lines if line and not line.startswith("WARNING:")), "")


def say(text: str) -> None:
    """Print a line and flush it, so that it is visible through a pipe."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
