"""What `make test` runs: the parts, each a list of commands."""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/test-logs"
RANKS = (1, 2, 3, 4, 8)
# Unless --ranks says it: on one node, where teams of the eight have other sizes, and over
# messages. `.ci/run` has 3 and 8 of both with a second MPI.
ON_ONE_NODE = (1, 2, 4, 8)
OVER_MESSAGES = (1, 3, 4)
# A part of its own: each MPI has its own ways to end.
JOBS = tuple(f"tests/launch/test_{name}.py" for name in ("messages", "lost_ranks", "absent_ranks"))
LIBRARY = "tests/install/test_library.py"
# Pure functions that one thread calls: nothing for ThreadSanitizer, under which they take a minute.
PURE = {
    "test_activation",
    "test_activation_dispute",
    "test_activation_golden",
    "test_activation_random",
    "test_arena",
    "test_neighbors",
    "test_reduce",
    "test_schedule",
    "test_topology",
}

# What starts threads, in a test itself and in tests/c/support.h.
STARTS_THREADS = re.compile(r"\b(pthread_create|team_start|cast_open)\b")

# One thread in each of their processes: as little for ThreadSanitizer.
ONE_THREAD = {
    "test_exchange",
    "test_exchange_protocol",
    "test_exchange_traffic",
    "test_exchange_values",
    "test_huge_pages",
    "test_options",
    "test_pages",
    "test_peer_memory",
    "test_pid_namespaces",
    "test_remap",
    "test_segment",
    "test_segment_life",
}

# All their ranks are processes, and ThreadSanitizer sees one process at a time.
FORKED = {"test_engine_soak", "test_private_faults"}

# Compiled as for users, beside pure functions: kernels, memory, random trials, what is measured,
# what does less under sanitizers. The others would find what they find there; all of tests/mpi
# runs this engine.
OPTIMISED = {
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
    "test_remap",
    "test_remapped_arrays",
    "test_ways",
    "test_trace",
    "test_wait",
}

# Several C tests run at a time: these last longest, and begin.
LONGEST = (
    *("test_engine_agreement", "test_inplace", "test_private", "test_reduce", "test_mpi_fuzz"),
    *("test_engine_departure", "test_neighbor_faults"),
)
# What these tests measure other tests would change,
ALONE = {"training": ("training", "demo")}
# and what these measure, or how late they allow something to be, even what has the idle cores only.
# (Ranks that are stopped or killed have seconds: that may be in company.)
UNDISTURBED = {
    "python": ("bench_computing", "exit", "handle", "passive", "waiting"),
    "hosts": ("punctual",),
}

# Seconds for what has the idle cores only: those in front may leave few. Pauses do not count.
BEHIND_TIMEOUT = 1800

# Without what tests/startup leaves out of torch, sharded models do not work, and meta tensors have
# their strides from other functions than users'.
WHOLE_TORCH = ("flat", "optimizer_sharded")

TWO = ("-n", "2")  # pytest's processes: one starts up while another waits
THREE = ("-n", "3")  # where many tests wait: for seconds, or for processes that start
BY_FILE = ("--dist", "loadfile")


@dataclass
class Command:
    """One command of a part; `counts`: its output tells how many tests it executed."""

    name: str
    argv: list[str]
    timeout: float
    counts: bool = True
    ranks: int = 0  # > 0: the output of every rank is in a log of its own
    lanes: int = 1  # so many of those that follow each other may run at a time: they wait a lot
    behind: bool = False  # it only computes: it has the cores that those in front leave idle
    undisturbed: bool = False  # nothing runs behind it, which is stopped meanwhile
    shown: str = ""  # the lines of rank 0's log that begin so are printed

    def __post_init__(self) -> None:
        if self.behind and self.undisturbed:
            raise ValueError(f"{self.name} would wait for itself: it is behind and undisturbed")

    def logs(self) -> list[Path]:
        log = LOGS / f"{self.name}.log"
        return [log, *(log.with_suffix(f".{rank}.log") for rank in range(self.ranks))]


@dataclass(frozen=True)
class Launcher:
    """An MPI by its name, and its command that launches ranks."""

    name: str
    mpiexec: list[str]


def c_part(flavour: str, timeout: float) -> list[Command]:
    """Builds tests/c/test_*.c with the engine and runs each."""
    tests = sorted(path.stem for path in (ROOT / "tests/c").glob("test_*.c"))
    if missing := {*LONGEST, *PURE, *ONE_THREAD, *FORKED, *OPTIMISED} - set(tests):
        raise FileNotFoundError(f"no such C test: {', '.join(sorted(missing))}")
    tests.sort(key=lambda test: test not in LONGEST)
    if flavour == "c":
        tests = [test for test in tests if test in PURE | OPTIMISED]
    if flavour == "tsan":
        for test in sorted(PURE | ONE_THREAD):
            if STARTS_THREADS.search((ROOT / f"tests/c/{test}.c").read_text()):
                raise ValueError(f"{test} starts threads: ThreadSanitizer has to see them")
        tests = [test for test in tests if test not in PURE | ONE_THREAD | FORKED]
    make = ["make", "-s", "-k", "-j2", *(f"build/{flavour}/{test}" for test in tests)]
    # TSan wants its shadow memory where address randomisation may have put a library.
    prefix = ["setarch", "-R"] if flavour == "tsan" and shutil.which("setarch") else []
    runs = [
        Command(f"{flavour}-{t}", [*prefix, f"build/{flavour}/{t}"], timeout, lanes=3)
        for t in tests
    ]
    behind = flavour != "c"
    seconds = BEHIND_TIMEOUT if behind else 300
    return [Command(f"{flavour}-build", make, seconds, counts=False, behind=behind), *runs]


def pytest_part(
    name: str, timeout: float, *arguments: str, undisturbed: bool = False
) -> list[Command]:
    """One pytest process."""
    argv = [sys.executable, "-m", "pytest", "-q", *arguments]
    return [Command(name, argv, timeout, undisturbed=undisturbed)]


def but_for_some(part: str, timeout: float, *arguments: str) -> list[Command]:
    """The tests of a folder with these arguments, and those that are to run alone."""
    alone, undisturbed = (
        [f"tests/{part}/test_{name}.py" for name in some.get(part, ())]
        for some in (ALONE, UNDISTURBED)
    )
    ignored = [f"--ignore={test}" for test in (*alone, *undisturbed)]
    commands = pytest_part(part, timeout, *arguments, *ignored, f"tests/{part}")
    if alone:
        commands += pytest_part(f"{part}-alone", timeout, *alone)
    if undisturbed:
        commands += pytest_part(f"{part}-undisturbed", timeout, *undisturbed, undisturbed=True)
    return commands


def python_part(timeout: float) -> list[Command]:
    """tests/python, and in a process that has all of torch those of it that need it."""
    whole = [f"tests/python/test_{name}.py" for name in WHOLE_TORCH]
    pytest = ["env", "WHOLE_TORCH=1", sys.executable, "-m", "pytest", "-q"]
    ignored = [f"--ignore={test}" for test in whole]
    return [
        *but_for_some("python", timeout, *THREE, *BY_FILE, *ignored),
        Command("python-torch", [*pytest, *whole], timeout),
    ]


def on_ranks(
    name: str, folders: list[str], mpi: Launcher, size: int, timeout: float, *options: str
) -> Command:
    """The tests of folders under mpiexec. Ranks that sleep leave cores to others beside them, and
    one alone waits for nobody.
    """
    sleep = SLEEP.get(mpi.name, ()) if size >= CROWDED else ()
    argv = [
        *(*sleep, *mpi.mpiexec, "-n", str(size)),
        *(sys.executable, "tests/mpi_rank.py", str(LOGS / f"{name}-{size}"), "-v"),
        *(*options, *folders),
    ]
    lanes = 3 if sleep or size == 1 else 1
    return Command(f"{name}-{size}", argv, timeout, ranks=size, lanes=lanes)


# Front-ends, which are built on the collectives, depend little on the number of ranks, nor does the
# kind of array that a collective is given: an even one shows it in shared memory, an odd one over
# messages. Here torch is imported.
FRONT_ENDS = ["tests/mpi/training", "tests/mpi/tools"]
EVEN, ODD = 4, 3
# Ranks spin where others need the core. This makes those of an MPI sleep; with few ranks they spin,
# as users' do, and as they do with more of them in the parts that launch jobs.
CROWDED, SLEEP = 3, {"mpich": ("env", "MPIR_CVAR_ENABLE_HEAVY_YIELD=1")}


def ranks_of_front_ends(sizes: tuple[int, ...], most: int) -> int:
    """The largest of the chosen numbers that is not above; 0: there is none."""
    return max((size for size in sizes if size <= most), default=0)


def mpi_part(
    name: str,
    mpi: Launcher,
    sizes: tuple[int, ...],
    timeout: float,
    *,
    over_messages: bool = False,
) -> list[Command]:
    """tests/mpi, once for each number of ranks, and the front-ends for one of them."""
    options = ("--transport", "mpi") if over_messages else ()
    without = [f"--ignore={folder}" for folder in FRONT_ENDS]
    whole = ranks_of_front_ends(sizes, ODD if over_messages else EVEN)
    training, tools = (
        [
            on_ranks(f"{name}-{Path(folder).name}", [folder], mpi, n, timeout, *options)
            for n in {whole} - {0}
        ]
        for folder in FRONT_ENDS
    )
    collectives = [
        on_ranks(name, ["tests/mpi"], mpi, n, timeout, *options, *without)
        for n in sorted(set(sizes), reverse=True)
    ]
    commands = [*training, *collectives[:1], *tools, *collectives[1:]]  # what takes long begins
    # Those that may run beside each other have to follow each other.
    return sorted(commands, key=lambda command: command.lanes)


def transport_part(mpi: Launcher) -> list[Command]:
    """Builds tests/mpi_c/test_*.c with the MPI's compiler; each on several ranks, or by pytest."""
    make = ["make", "-s", "-k", "-j2", "tests-mpi_c", f"MPI={mpi.name}"]
    runs = [
        Command(
            f"transport-{size}",
            [*mpi.mpiexec, "-n", str(size), f"build/{mpi.name}/test_transport"],
            120,
        )
        for size in (1, 2, 3, 4)
    ]
    return [
        Command("transport-build", make, 120, counts=False),
        *runs,
        *pytest_part("transport-others", 120, "tests/mpi_c"),
    ]


def oracle_part(mpi: Launcher) -> list[Command]:
    """mpi4py's tests of collectives with wagma's sums, after they were downloaded.

    All of them on one and two ranks. On more, where an MPI that spins is slow, only those of
    Allreduce: the others are MPI's alone.
    """
    commands = [
        Command("oracle-fetch", [sys.executable, "tests/oracle/fetch.py"], 240, counts=False)
    ]
    for size in (1, 2, 3, 4):
        options = ["-k", "Allreduce or communicator"] if size > 2 else []
        commands.append(on_ranks("oracle", ["tests/oracle"], mpi, size, 240, *options))
        commands[-1].shown = "oracle"
    return commands


def all_parts(mpi: Launcher, sizes: tuple[int, ...] = ()) -> dict[str, list[Command]]:
    """Every part, in the order in which they run: quick and fundamental ones first, and last those
    that are prepared, or run, behind the others."""
    explore = [sys.executable, "tests/explore/run.py", "--quick"]
    return {
        "c": c_part("c", 120),
        "python": python_part(400),
        "transport": transport_part(mpi),
        "mpi": mpi_part("mpi", mpi, sizes or ON_ONE_NODE, 400),
        "messages": mpi_part("messages", mpi, sizes or OVER_MESSAGES, 500, over_messages=True),
        "oracle": oracle_part(mpi),
        "jobs": pytest_part("jobs", 480, *TWO, *BY_FILE, *JOBS),
        "launch": pytest_part(
            "launch",
            480,
            *THREE,
            *BY_FILE,
            "tests/launch",
            *(f"--ignore={job}" for job in JOBS),
        ),
        "training": but_for_some("training", 600, *TWO, *BY_FILE),
        "hosts": but_for_some("hosts", 480, *TWO),
        "install": pytest_part(
            "install",  # in one process: what is compiled for one is there for the next
            960,
            "tests/install",
            f"--ignore={LIBRARY}",
        ),
        "library": pytest_part("library", 120, LIBRARY),
        "asan": c_part("asan", 180),
        "tsan": c_part("tsan", 240),
        "explore": [Command("explore", explore, BEHIND_TIMEOUT, behind=True)],
    }
