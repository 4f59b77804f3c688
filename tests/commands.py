"""Runs the commands of `make test`: some behind the others, on the cores that these leave idle."""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from parts import ROOT, Command

Process: TypeAlias = subprocess.Popen[bytes]

running: set[Process] = set()  # the commands that run now


@dataclass(frozen=True)
class Ended:
    """How a command ended: why it failed, if so, and the seconds of CPU time that it took."""

    reason: str = ""
    cpu_seconds: float = 0.0


def signal_all(process: Process, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def wait(process: Process, timeout: float) -> float:
    """Seconds of CPU time of it and of all below it that were waited for."""
    descriptor = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], timeout)
    finally:
        os.close(descriptor)
    if not ready:
        raise subprocess.TimeoutExpired(process.args, timeout)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def stop(process: Process) -> None:
    """Ends a command that ran out of time: launchers get a chance to end their ranks."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        signal_all(process, signum)
        signal_all(process, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)


def start(command: Command, environment: dict[str, str]) -> Process:
    with command.logs()[0].open("wb") as output:
        process = subprocess.Popen(
            command.argv,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running.add(process)
    return process


def finish(process: Process, timeout: float) -> Ended:
    try:
        used = wait(process, timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        return Ended(f"not done after {timeout:g} s")
    finally:
        running.discard(process)
    return Ended(f"exit status {process.returncode}" if process.returncode else "", used)


def execute(
    command: Command, environment: dict[str, str], start: Callable[..., Process] = start
) -> Ended:
    try:
        return finish(start(command, environment), command.timeout)
    except OSError as error:
        return Ended(str(error))


@contextmanager
def ended_together(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Ctrl-C ends what runs, instead of waiting for it and for what would follow."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            stop(process)
        raise


def take_idle_cores_only(process: Process) -> None:
    """What it starts later inherits that."""
    with suppress(ProcessLookupError):
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    # Linux may share the cores among sessions first, and only then among the processes of each.
    with suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text("19")


class Behind:
    """Commands that only compute, one after the other, on cores that are idle otherwise.

    What is measured in front notices little of them; and nothing where they are paused.
    """

    def __init__(
        self, commands: Iterable[Command], environment: dict[str, str], pool: ThreadPoolExecutor
    ) -> None:
        self.process: Process | None = None  # the last that was started
        self.may_run = Lock()
        self.ends = {
            command.name: pool.submit(execute, command, environment, self.start)
            for command in commands
        }

    def start(self, command: Command, environment: dict[str, str]) -> Process:
        with self.may_run:
            self.process = start(command, environment)
            take_idle_cores_only(self.process)
            return self.process

    @contextmanager
    def paused(self) -> Iterator[None]:
        with self.may_run:
            process = self.process if self.process in running else None
            if process:
                signal_all(process, signal.SIGSTOP)
            try:
                yield
            finally:
                if process:
                    signal_all(process, signal.SIGCONT)


def execute_all(
    commands: list[Command], environment: dict[str, str], behind: Behind
) -> Iterator[tuple[Command, Ended]]:
    """Runs commands in order, those that may several at a time, and waits for those behind."""

    def end(command: Command) -> Ended:
        return (
            behind.ends[command.name].result() if command.behind else execute(command, environment)
        )

    for (lanes, alone), some in groupby(
        commands, key=lambda command: (command.lanes, command.alone)
    ):
        batch = list(some)
        with (
            behind.paused() if alone else nullcontext(),
            ThreadPoolExecutor(max_workers=lanes) as pool,
            ended_together(pool),
        ):
            yield from zip(batch, pool.map(end, batch), strict=True)
