"""Runs the commands of `make test` and `make test-all`."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from threading import Lock
from types import TracebackType
from typing import Self, TypeAlias

from parts import ROOT, Command

Process: TypeAlias = subprocess.Popen[bytes]

POLL_S = 0.02


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, or why it has none, and the seconds of CPU time that it
    took, with all below it that were waited for; unless it was ended before its time.
    """

    status: int | None
    trouble: str = ""
    cpu_seconds: float = 0.0

    @property
    def reason(self) -> str:
        """Return why the command failed, "" if it did not."""
        return self.trouble or (f"exit status {self.status}" if self.status else "")


def signal_all(process: Process, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def stop(*processes: Process) -> None:
    """Ends commands before their time: launchers get a chance to end their ranks."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            signal_all(process, signum)
            signal_all(process, signal.SIGCONT)
        deadline = time.monotonic() + 10
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0, deadline - time.monotonic()))


class Runner:
    """Runs commands, and ends what still runs when it is left early."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.running: set[Process] = set()
        # What starts is among those that run before anybody ends them, and nothing starts later.
        self.starting = Lock()
        self.ending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind:
            self.end_all()

    def end_all(self) -> None:
        """End what runs, and keep from starting what would follow."""
        with self.starting:
            self.ending = True
        stop(*self.running)

    def start(self, command: Command) -> Process:
        with command.logs()[0].open("wb") as output, self.starting:
            if self.ending:
                raise InterruptedError("interrupted")
            process = subprocess.Popen(
                command.argv,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.running.add(process)
        return process

    def wait(self, process: Process, timeout: float) -> Ended:
        """Wait like Popen.wait(), which does not say what CPU time the process took."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return Ended(process.returncode, cpu_seconds=used.ru_utime + used.ru_stime)
            time.sleep(POLL_S)
        stop(process)
        return Ended(None, f"not done after {timeout:g} s")

    def execute(self, command: Command) -> Ended:
        """Run one command to its end."""
        try:
            process = self.start(command)
        except OSError as error:
            return Ended(None, str(error))
        try:
            return self.wait(process, command.timeout)
        except ChildProcessError:
            return Ended(None, "interrupted")  # end_all() has waited for it
        finally:
            self.running.discard(process)

    def run(self, commands: Iterable[Command]) -> Iterator[tuple[Command, Ended]]:
        """Run commands in order, several at a time where they may."""
        for lanes, some in groupby(commands, key=attrgetter("lanes")):
            batch = list(some)
            with ThreadPoolExecutor(max_workers=lanes) as pool:
                yield from zip(batch, pool.map(self.execute, batch), strict=True)
