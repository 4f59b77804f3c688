"""Runs the commands of `make test`: some behind the others, on the cores that these leave idle."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self, TypeAlias

from parts import ROOT, Command

Process: TypeAlias = subprocess.Popen[bytes]

POLL_S = 0.02


@dataclass(frozen=True)
class Ended:
    """How a command ended: why it failed, if so, and the seconds of CPU time that it took, with all
    below it that were waited for; unless it was ended before its time.
    """

    reason: str = ""
    cpu_seconds: float = 0.0


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


def take_idle_cores_only(process: Process) -> None:
    """What it starts from now on inherits that. Where it is refused, others have fewer cores."""
    with suppress(OSError):
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    # Linux may share the cores among sessions first, and only then among the processes of each.
    with suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text("19")


class Runner:
    """Runs commands as they are given, and from the beginning those that may run behind them.

    Those behind only compute; they are run one after the other, on cores that are idle otherwise.
    What is measured in front notices little of that, and what is undisturbed nothing.
    """

    def __init__(self, environment: dict[str, str], behind: Iterable[Command] = ()) -> None:
        self.environment = environment
        self.running: set[Process] = set()
        # What starts is among those that run before anybody ends them, and nothing starts later.
        self.starting = Lock()
        self.ending = False
        # Nothing starts behind what is undisturbed, and what has started there can be stopped.
        self.may_run_behind = Lock()
        self.process_behind: Process | None = None
        self.paused = False
        self.pool = ThreadPoolExecutor(max_workers=1)
        self.behind: dict[str, Future[Ended]] = {
            command.name: self.pool.submit(self.execute, command, self.start_behind)
            for command in behind
        }

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
        self.pool.shutdown()

    def end_all(self) -> None:
        """What runs, and what would follow."""
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

    def start_behind(self, command: Command) -> Process:
        with self.may_run_behind:
            process = self.process_behind = self.start(command)
            take_idle_cores_only(process)
        return process

    def wait(self, process: Process, timeout: float, behind: bool) -> Ended:
        """Like Popen.wait(), which does not say what CPU time it took. A pause is no time."""
        spent, last = 0.0, time.monotonic()
        while spent < timeout:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                failed = f"exit status {process.returncode}" if process.returncode else ""
                return Ended(failed, used.ru_utime + used.ru_stime)
            time.sleep(POLL_S)
            now = time.monotonic()
            spent += 0 if behind and self.paused else now - last
            last = now
        stop(process)
        return Ended(f"not done after {timeout:g} s")

    def execute(self, command: Command, start: Callable[[Command], Process] | None = None) -> Ended:
        try:
            process = (start or self.start)(command)
        except OSError as error:
            return Ended(str(error))
        try:
            return self.wait(process, command.timeout, command.behind)
        except ChildProcessError:
            return Ended("interrupted")  # end_all() has waited for it
        finally:
            self.running.discard(process)

    def end(self, command: Command) -> Ended:
        return self.behind[command.name].result() if command.behind else self.execute(command)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Stops what runs behind. It stays so if this process is killed by SIGKILL meanwhile."""
        with self.may_run_behind:
            process = self.process_behind if self.process_behind in self.running else None
            self.paused = True
            if process:
                signal_all(process, signal.SIGSTOP)
            try:
                yield
            finally:
                self.paused = False
                if process:
                    signal_all(process, signal.SIGCONT)

    def run(self, commands: Iterable[Command]) -> Iterator[tuple[Command, Ended]]:
        """In order, those that may several at a time; those behind are waited for."""
        for (lanes, undisturbed), some in groupby(
            commands, key=lambda command: (command.lanes, command.undisturbed)
        ):
            batch = list(some)
            with (
                self.undisturbed() if undisturbed else nullcontext(),
                ThreadPoolExecutor(max_workers=lanes) as pool,
            ):
                try:
                    yield from zip(batch, pool.map(self.end, batch), strict=True)
                except BaseException:  # Ctrl-C does not wait for what runs
                    self.end_all()
                    raise
