"""Processes that are stopped and continued.

This file is also a program, which a process starts so as to be stopped for a while; that is why it
needs nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.001
STOPS_WITHIN_S = 30.0


def state_of(pid: int) -> str:
    """State of a process as the kernel's letter: R, S, D, T (stopped), Z and others.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    return stat.rpartition(")")[2].split()[0]  # the name before may have spaces and brackets


def suspend(pid: int) -> None:
    """Stop a process (SIGSTOP); return when it has stopped.

    Raises:
        ProcessLookupError: there is no such process, or it has ended.
        TimeoutError: it still runs 30 s later; it may be in an operation of the kernel.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOPS_WITHIN_S
    while (state := state_of(pid)) != "T":
        if state in "ZX":
            raise ProcessLookupError(f"process {pid} has ended")
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not stop: it is in state {state}")
        time.sleep(POLL_S)


def resume(pid: int) -> None:
    """Continue a stopped process (SIGCONT)."""
    os.kill(pid, signal.SIGCONT)


def suspend_self(seconds: float) -> None:
    """Stop this process, all its threads, for `seconds`; return when it has been continued.

    Raises:
        RuntimeError: it could not be stopped; the message says why.
    """
    # Another program and not a fork: a copy of this process would inherit what only a rank may
    # have, and there may be threads.
    helper = subprocess.run(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), repr(float(seconds))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # a launcher reads a rank's output until nobody can write it
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if helper.returncode != 0:
        raise RuntimeError(f"the process was not stopped for {seconds} s: {helper.stderr.strip()}")


def _main() -> None:
    """Stop the process that started this one, and continue it."""
    pid, seconds = int(sys.argv[1]), float(sys.argv[2])
    if os.getppid() != pid:
        sys.exit(f"process {pid} is not its parent")  # it has ended, and others may get its number
    suspend(pid)
    try:
        time.sleep(seconds)
    finally:
        if os.getppid() == pid:
            resume(pid)


if __name__ == "__main__":
    _main()
