"""Runs the parts of `make test`, prints the seconds of each and one summary line.

A part is a list of commands. It passes when all of them succeed in time and at least one test was
executed, which is read from their output: every program ends with `N passed, M failed`, or with
pytest's own line.
"""

import argparse
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, repeat
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/test-logs"
RANKS = (1, 2, 3, 4, 5, 8)
# Unless --ranks says it: on one node, where teams of the eight have the sizes between, and over
# messages. `.ci/run` has 3 and 8 of both with a second MPI.
ON_ONE_NODE = (1, 2, 4, 8)
OVER_MESSAGES = (1, 3, 5)
# A part of its own: each MPI has its own ways to end.
JOBS = ("tests/launch/test_messages.py", "tests/launch/test_lost_ranks.py")
LIBRARY = "tests/install/test_library.py"
COUNTED = re.compile(r"\b(\d+) (passed|failed|skipped|error)")
SHOWN_LINES = 200
# Pure functions that one thread calls: nothing for ThreadSanitizer, under which they take a minute.
PURE = {
    "test_activation",
    "test_activation_dispute",
    "test_activation_golden",
    "test_activation_random",
    "test_neighbors",
    "test_reduce",
    "test_schedule",
    "test_topology",
}

# All their ranks are processes, and ThreadSanitizer sees one process at a time.
FORKED = {"test_engine_soak", "test_private_faults"}

# Compiled as for users: kernels, memory, random trials, what is measured, and what does less under
# sanitizers. The others would find what they find there; and all of tests/mpi runs this engine.
OPTIMISED = {
    "test_activation_random",
    "test_cores",
    "test_engine_agreement",
    "test_engine_fuzz",
    "test_engine_fuzz_threads",
    "test_engine_killed",
    "test_engine_soak",
    "test_exchange",
    "test_huge_pages",
    "test_inplace",
    "test_mpi_calls",
    "test_mpi_fuzz",
    "test_mpi_random",
    "test_neighbor_engine",
    "test_pages",
    "test_private",
    "test_private_faults",
    "test_reduce",
    "test_remap",
    "test_stores",
    "test_topology",
    "test_trace",
    "test_wait",
}

# Several C tests run at a time: these last longest, and begin.
LONGEST = (
    *("test_engine_agreement", "test_inplace", "test_private", "test_reduce", "test_mpi_fuzz"),
    *("test_engine_departure", "test_neighbor_faults"),
)
# What these tests measure, or how late they allow something to be, a busy core would change.
ALONE = {
    "python": ("bench_computing", "demo_runs", "exit", "faults", "handle", "passive", "waiting"),
    "training": ("training",),
    "hosts": ("punctual",),
}

# What a user's `python -m wagma tune` has measured changes nothing here; pip's cache stays its own.
CACHES = {
    "XDG_CACHE_HOME": str(ROOT / "build/test-cache"),
    "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR")
    or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pip"),
}
# Where sitecustomize.py is, which lets processes that use torch start sooner.
STARTUP = {
    "PYTHONPATH": os.pathsep.join(
        filter(None, (str(ROOT / "tests/startup"), os.environ.get("PYTHONPATH")))
    )
}
TWO = ("-n", "2")  # pytest's processes: one starts up while another waits
BY_FILE = ("--dist", "loadfile")
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


@dataclass
class Command:
    """One command of a part; `counts`: its output tells how many tests it executed."""

    name: str
    argv: list[str]
    timeout: float
    counts: bool = True
    ranks: int = 0  # > 0: the output of every rank is in a log of its own
    lanes: int = 1  # so many of those that follow each other may run at a time: they wait a lot
    shown: str = ""  # the lines of rank 0's log that begin so are printed

    def logs(self) -> list[Path]:
        log = LOGS / f"{self.name}.log"
        return [log, *(log.with_suffix(f".{rank}.log") for rank in range(self.ranks))]


running: set[subprocess.Popen[bytes]] = set()  # the commands that run now


@dataclass
class Result:
    """What became of a part; `cores`: used on average, of processes that were waited for."""

    seconds: float = 0.0
    cores: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)


def c_part(flavour: str, timeout: float) -> list[Command]:
    """Builds tests/c/test_*.c with the engine and runs each."""
    tests = sorted(path.stem for path in (ROOT / "tests/c").glob("test_*.c"))
    if missing := {*LONGEST, *PURE, *FORKED, *OPTIMISED} - set(tests):
        raise FileNotFoundError(f"no such C test: {', '.join(sorted(missing))}")
    tests.sort(key=lambda test: test not in LONGEST)
    if flavour == "c":
        tests = [test for test in tests if test in OPTIMISED]
    if flavour == "tsan":
        tests = [test for test in tests if test not in PURE | FORKED]
    make = ["make", "-s", "-k", "-j2", *(f"build/{flavour}/{test}" for test in tests)]
    lanes = 2 if flavour == "tsan" else 3  # ThreadSanitizer's leave a core idle less often
    # TSan wants its shadow memory where address randomisation may have put a library.
    prefix = ["setarch", "-R"] if flavour == "tsan" and shutil.which("setarch") else []
    runs = [
        Command(f"{flavour}-{t}", [*prefix, f"build/{flavour}/{t}"], timeout, lanes=lanes)
        for t in tests
    ]
    return [Command(f"{flavour}-build", make, 300, counts=False), *runs]


def pytest_part(name: str, timeout: float, *arguments: str) -> list[Command]:
    """One pytest process."""
    return [Command(name, [sys.executable, "-m", "pytest", "-q", *arguments], timeout)]


def but_for_some(part: str, timeout: float, *arguments: str) -> list[Command]:
    """The tests of a folder with these arguments, and those that are to run alone."""
    alone = [f"tests/{part}/test_{name}.py" for name in ALONE[part]]
    ignored = [f"--ignore={test}" for test in alone]
    return [
        *pytest_part(part, timeout, *arguments, *ignored, f"tests/{part}"),
        *pytest_part(f"{part}-alone", timeout, *alone),
    ]


def on_ranks(
    name: str, folder: str, mpiexec: list[str], size: int, timeout: float, *options: str
) -> Command:
    """The tests of a folder under mpiexec."""
    rank = [sys.executable, "tests/mpi_rank.py", str(LOGS / f"{name}-{size}"), "-v", *options]
    argv = [
        *(SLEEP if size >= CROWDED else ()),
        *mpiexec,
        "-n",
        str(size),
        *rank,
        f"tests/{folder}",
    ]
    return Command(f"{name}-{size}", argv, timeout, ranks=size)


# Front-ends, which are built on the collectives, depend little on the number of ranks: an even one
# shows it in shared memory, an odd one over messages.
FRONT_ENDS = ("training", "tools")
EVEN, ODD = 4, 3
# MPICH's ranks spin where others need the core. This makes them sleep, slower with few ranks.
CROWDED, SLEEP = 8, ("env", "MPIR_CVAR_ENABLE_HEAVY_YIELD=1")


def ranks_of_front_ends(sizes: tuple[int, ...], most: int) -> int:
    """The largest of the chosen numbers that is not above; 0: there is none."""
    return max((size for size in sizes if size <= most), default=0)


def mpi_part(
    name: str,
    mpiexec: list[str],
    sizes: tuple[int, ...],
    timeout: float,
    *,
    over_messages: bool = False,
) -> list[Command]:
    """tests/mpi, once for each number of ranks."""
    transport = ("--transport", "mpi") if over_messages else ()
    whole = ranks_of_front_ends(sizes, ODD if over_messages else EVEN)
    without = [f"--ignore=tests/mpi/{folder}" for folder in FRONT_ENDS]
    return [
        on_ranks(name, "mpi", mpiexec, n, timeout, *transport, *(() if n == whole else without))
        for n in sizes
    ]


def transport_part(mpi: str, mpiexec: list[str]) -> list[Command]:
    """Builds tests/mpi_c/test_*.c with the MPI's compiler; each on several ranks, or by pytest."""
    make = ["make", "-s", "-k", "-j2", "tests-mpi_c", f"MPI={mpi}"]
    runs = [
        Command(
            f"transport-{size}", [*mpiexec, "-n", str(size), f"build/{mpi}/test_transport"], 120
        )
        for size in (1, 2, 3, 4)
    ]
    return [
        Command("transport-build", make, 120, counts=False),
        *runs,
        *pytest_part("transport-others", 120, "tests/mpi_c"),
    ]


def oracle_part(mpiexec: list[str]) -> list[Command]:
    """mpi4py's tests of collectives with wagma's sums, after they were downloaded.

    All of them on one and two ranks. On more, where an MPI that spins is slow, only those of
    Allreduce: the others are MPI's alone.
    """
    commands = [
        Command("oracle-fetch", [sys.executable, "tests/oracle/fetch.py"], 240, counts=False)
    ]
    for size in (1, 2, 3, 4):
        options = ["-k", "Allreduce or communicator"] if size > 2 else []
        commands.append(on_ranks("oracle", "oracle", mpiexec, size, 240, *options))
        commands[-1].shown = "oracle"
    return commands


def all_parts(
    mpi: str, mpiexec: list[str], sizes: tuple[int, ...] = ()
) -> dict[str, list[Command]]:
    """Every part, in the order in which they run: quick and fundamental ones first."""
    explore = [sys.executable, "tests/explore/run.py", "--quick"]
    return {
        "c": c_part("c", 120),
        "asan": c_part("asan", 180),
        "tsan": c_part("tsan", 240),
        "explore": [Command("explore", explore, 900)],
        "python": but_for_some("python", 400, *TWO, *BY_FILE),
        "transport": transport_part(mpi, mpiexec),
        "mpi": mpi_part("mpi", mpiexec, sizes or ON_ONE_NODE, 400),
        "messages": mpi_part("messages", mpiexec, sizes or OVER_MESSAGES, 500, over_messages=True),
        "oracle": oracle_part(mpiexec),
        "jobs": pytest_part("jobs", 480, *TWO, *BY_FILE, *JOBS),
        "launch": pytest_part(
            "launch",
            480,
            *TWO,
            *BY_FILE,
            "tests/launch",
            *(f"--ignore={job}" for job in JOBS),
        ),
        "training": but_for_some("training", 600, *TWO),
        "hosts": but_for_some("hosts", 480, *TWO),
        "install": pytest_part(
            "install",
            960,
            *TWO,
            *BY_FILE,
            "tests/install",
            f"--ignore={LIBRARY}",
        ),
        "library": pytest_part("library", 120, LIBRARY),
    }


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a command that ran out of time: launchers get a chance to end their ranks."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
            process.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def execute(command: Command, environment: dict[str, str]) -> tuple[Counter[str], list[str]]:
    """Runs one command: what it counted, and why it failed."""
    counts: Counter[str] = Counter()
    reasons = []
    with command.logs()[0].open("wb") as output:
        try:
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
            status = process.wait(timeout=command.timeout)
            running.discard(process)
            if status != 0:
                reasons.append(f"exit status {status}")
        except subprocess.TimeoutExpired:
            stop(process)
            running.discard(process)
            reasons.append(f"not done after {command.timeout:g} s")
        except OSError as error:
            reasons.append(str(error))
    if command.counts:
        counts = executed(command)
        if not succeeded(counts):
            reasons.append(describe(counts))
    return counts, reasons


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


def execute_all(
    commands: list[Command], environment: dict[str, str]
) -> Iterator[tuple[Command, Counter[str], list[str]]]:
    """Runs commands in order, those that may several at a time."""
    for lanes, some in groupby(commands, key=lambda command: command.lanes):
        batch = list(some)
        with ThreadPoolExecutor(max_workers=lanes) as pool, ended_together(pool):
            done = pool.map(execute, batch, repeat(environment))
            for command, (counts, reasons) in zip(batch, done, strict=True):
                yield command, counts, reasons


def cpu_seconds() -> float:
    """Of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def show(command: Command) -> None:
    """Prints the logs of a command that failed, without the ranks that did not."""
    output, *ranks = command.logs()
    for log in [output, *(rank for rank in ranks if not succeeded(counted(rank)))]:
        lines = lines_of(log)
        print(f"---- {log.relative_to(ROOT)}, {len(lines)} lines, the last {SHOWN_LINES}:")
        print(*lines[-SHOWN_LINES:], sep="\n")


def run_part(commands: list[Command], environment: dict[str, str]) -> Result:
    result = Result()
    start, used = time.monotonic(), cpu_seconds()
    for command, counts, reasons in execute_all(commands, environment):
        result.counts += counts
        if reasons:
            show(command)
            result.reasons.append(f"{command.name}: {', '.join(reasons)}")
    result.seconds = time.monotonic() - start
    result.cores = (cpu_seconds() - used) / result.seconds
    if not (result.counts["passed"] or result.reasons):
        result.reasons.append("no test was executed")
    return result


def report(name: str, commands: list[Command], result: Result) -> None:
    spent = f"{result.seconds:6.1f} s  {result.cores:3.1f} cores"
    print(f"{name:9} {spent}  {describe(result.counts)}", flush=True)
    for line in (line for command in commands for line in shown(command)):
        print(f"          {line}", flush=True)
    for reason in result.reasons:
        print(f"          FAILED {reason}", flush=True)


def run_parts(parts: dict[str, list[Command]], environment: dict[str, str]) -> dict[str, Result]:
    """Runs the parts one after the other; a failure does not keep the others from running."""
    results: dict[str, Result] = {}
    for name, commands in parts.items():
        results[name] = run_part(commands, environment)
        report(name, commands, results[name])
    return results


def describe(counts: Counter[str]) -> str:
    named = ("passed", "failed", "error", "skipped")
    return ", ".join(f"{counts[name]} {name}" for name in named if counts[name]) or "0 passed"


def words(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpi", required=True, help="name of the MPI, for the summary")
    parser.add_argument("--mpiexec", required=True, help="command that launches ranks")
    parser.add_argument(
        "--ranks",
        type=int,
        nargs="+",
        choices=RANKS,
        default=(),
        help='numbers of them in the parts "mpi" and "messages" (default: '
        f"{words(ON_ONE_NODE)}; {words(OVER_MESSAGES)})",
    )
    parser.add_argument("parts", nargs="*", help="default: all")
    options = parser.parse_args()

    launcher = shlex.split(options.mpiexec)
    if Path(launcher[0]).exists():
        launcher[0] = str(Path(launcher[0]).absolute())  # tests change the working directory
    parts = all_parts(options.mpi, launcher, tuple(options.ranks))
    if unknown := set(options.parts) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    chosen = {name: parts[name] for name in parts if name in options.parts or not options.parts}

    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    start = time.monotonic()
    given = {**os.environ, **CACHES, **STARTUP, **SANITIZERS}
    results = run_parts(chosen, {**given, "WAGMA_TEST_MPIEXEC": shlex.join(launcher)})

    total: Counter[str] = sum((result.counts for result in results.values()), Counter())
    failed = [name for name, result in results.items() if result.reasons]
    seconds = time.monotonic() - start
    verdict = f"FAILED: {', '.join(failed)}" if failed else "ok"
    print(f"make test ({options.mpi}): {describe(total)} in {seconds:.0f} s: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
