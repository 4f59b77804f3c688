"""Runs the parts of `make test`, or with --rest those of `make test-all`, some at a time.

A part is a list of commands. It passes when all of them succeed in time and at least one test was
executed, which is read from their output: every program ends with `N passed, M failed`, or with
pytest's own line. Prints how long each part took, its CPU time, and a summary. Tests that others
would disturb run when all parts have ended.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import unfinished
from commands import POLL_S, Runner
from parts import AT_A_TIME, LOGS, RANKS, ROOT, SIZES, Command, Launcher, all_parts, alone
from recap import failures

COUNTED = re.compile(r"\b(\d+) (passed|failed|skipped|error)")
SHOWN_LINES = 200
NOTHING_SELECTED = 5  # pytest's exit status

# What a user's `python -m wagma tune` has measured changes nothing here; pip's cache stays its own.
CACHES = {
    "XDG_CACHE_HOME": str(ROOT / "build/test-cache"),
    "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR")
    or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pip"),
}
# Keep 32 MiB of freed memory to watch. With the usual 256 MiB new pages would take most of the time
# of tests that allocate much.
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


@dataclass
class Result:
    """What became of a part; `cpu_seconds`: of its processes that were waited for."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # the lines of its logs that name tests
    failed: list[Command] = field(default_factory=list)


def lines_of(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines() if log.exists() else []


def counted(log: Path) -> Counter[str]:
    """The counts on the last line that has any."""
    for line in reversed(lines_of(log)):
        if found := COUNTED.findall(line):
            return Counter({word: int(number) for number, word in found})
    return Counter()


def succeeded(counts: Counter[str]) -> bool:
    return counts["passed"] > 0 and not counts["failed"] and not counts["error"]


def executed(command: Command) -> Counter[str]:
    """What a command counted; with several ranks, what rank 0 did."""
    return counted(command.logs()[1 if command.ranks else 0])


def shown(command: Command) -> list[str]:
    """What the log of rank 0 has for everybody."""
    if not command.shown:
        return []
    return [line for line in lines_of(command.logs()[1]) if line.startswith(command.shown)]


def unfinished_on(command: Command) -> list[str]:
    """In which tests its ranks were ended, and which rank had failed there."""
    logs = dict(enumerate(command.logs()[1:]))
    return unfinished.describe({rank: lines_of(log) for rank, log in logs.items()})


def show(command: Command) -> None:
    """Prints the logs of a command that failed, without the ranks that did not.

    The last lines tell in which test ranks were ended.
    """
    output, *ranks = command.logs()
    for log in [output, *(rank for rank in ranks if not succeeded(counted(rank)))]:
        lines = lines_of(log)
        print(f"---- {log.relative_to(ROOT)}, {len(lines)} lines, the last {SHOWN_LINES}:")
        print(*lines[-SHOWN_LINES:], sep="\n")
    for line in unfinished_on(command):
        print(f"---- {command.name}: {line}")


def run_part(commands: list[Command], runner: Runner) -> Result:
    result = Result()
    start = time.monotonic()
    for command, ended in runner.run(commands):
        nothing = command.optional and ended.status == NOTHING_SELECTED
        reasons = [ended.reason] if ended.reason and not nothing else []
        if command.counts and not nothing:
            counts = executed(command)
            result.counts += counts
            reasons += [] if succeeded(counts) else [describe(counts)]
        if reasons:
            reasons += unfinished_on(command)
            result.failed.append(command)
            result.failures += failures(line for log in command.logs() for line in lines_of(log))
            result.reasons.append(f"{command.name}: {', '.join(reasons)}")
        result.cpu_seconds += ended.cpu_seconds
    result.seconds = time.monotonic() - start
    return result


def report(name: str, commands: list[Command], result: Result) -> None:
    for command in result.failed:
        show(command)
    spent = f"{result.seconds:6.1f} s {result.cpu_seconds:6.1f} CPU s"
    print(f"{name:9} {spent}  {describe(result.counts)}", flush=True)
    for line in (line for command in commands for line in shown(command)):
        print(f"          {line}", flush=True)
    for reason in result.reasons:
        print(f"          FAILED {reason}", flush=True)


def run_parts(
    parts: dict[str, list[Command]],
    last: list[Command],
    at_a_time: int,
    environment: dict[str, str],
) -> dict[str, Result]:
    """Runs the parts, and then `last`; a failure does not keep the others from running."""
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(at_a_time) as pool, Runner(environment) as runner:
        for some in (parts, {"alone": last} if last else {}):
            running = {pool.submit(run_part, some[name], runner): name for name in some}
            while running:
                # A signal just before a wait without end would not interrupt it.
                ended, _ = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for name, result in [(running.pop(one), one.result()) for one in ended]:
                    if some is parts and not (result.counts["passed"] or result.reasons):
                        result.reasons.append("no test was executed")
                    report(name, some[name], result)
                    results[name] = result
    return results


def describe(counts: Counter[str]) -> str:
    named = ("passed", "failed", "error", "skipped")
    return ", ".join(f"{counts[name]} {name}" for name in named if counts[name]) or "0 passed"


def leave(signum: int, _: object) -> None:
    """What runs is ended on the way out, which no further signal cuts short."""
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, lambda *_: None)  # SIG_IGN would be inherited by what is being started
    sys.exit(128 + signum)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpi", required=True, help="name of the MPI, for the summary")
    parser.add_argument("--mpiexec", required=True, help="command that launches ranks")
    parser.add_argument(
        "--rest", action="store_true", help="what the short run leaves out: the rest of all tests"
    )
    parser.add_argument(
        "--ranks",
        type=int,
        nargs="+",
        choices=RANKS,
        default=(),
        help='numbers of them in the parts "mpi" and "messages" '
        f"(default: {SIZES['mpi']} and {SIZES['messages']} in the short run and in the rest)",
    )
    parser.add_argument("parts", nargs="*", help="default: all")
    options = parser.parse_args()

    launcher = shlex.split(options.mpiexec)
    if Path(launcher[0]).exists():
        launcher[0] = str(Path(launcher[0]).absolute())  # tests change the working directory
    mpi = Launcher(options.mpi, launcher)
    parts = all_parts(mpi, not options.rest, tuple(options.ranks))
    if unknown := set(options.parts) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    chosen = {name: parts[name] for name in parts if name in options.parts or not options.parts}

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signum, leave)
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    start = time.monotonic()
    given = {**os.environ, **CACHES, **SANITIZERS}
    given["WAGMA_TEST_MPIEXEC"] = shlex.join(launcher)
    last = alone(mpi, not options.rest, chosen)
    results = run_parts(chosen, last, AT_A_TIME[mpi.name], given)

    total: Counter[str] = sum((result.counts for result in results.values()), Counter())
    failed = [name for name, result in results.items() if result.reasons]
    seconds = time.monotonic() - start
    # The last lines, which stay where somebody cuts the middle of a long output.
    for result in results.values():
        for line in dict.fromkeys(result.failures):
            print(line)
        for reason in result.reasons:
            print(f"FAILED {reason}")
    verdict = f"FAILED: {', '.join(failed)}" if failed else "ok"
    target = "test-all" if options.rest else "test"
    print(f"make {target} ({options.mpi}): {describe(total)} in {seconds:.0f} s: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
