"""What `make test` and `make test-all` run: the parts, each a list of commands.

`make test` is the short run: something of every part. `make test-all` has the rest: other C tests,
other numbers of ranks, and the tests that are marked `long`.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/test-logs"

# A C test names in such a comment the flavours in which the short run has it: compiled as for users
# ("c"), and under a sanitizer ("asan", "tsan").
SHORT_C = re.compile(r"^/\* short run: (.+) \*/$", re.MULTILINE)
FLAVOURS = ("c", "asan", "tsan")
# What starts threads, in a C test itself and in tests/c/support.h: the others have nothing for the
# thread sanitizer.
STARTS_THREADS = re.compile(r"\b(pthread_create|team_start|cast_open)\b")

# Numbers of ranks: of the short run, and of the rest.
SIZES = {
    "transport": ((2, 3), (1, 4)),
    "mpi": ((2, 4), (1, 8)),
    "messages": ((3,), (1, 2, 4)),
    "oracle": ((2,), (1, 3, 4)),
}
RANKS = (1, 2, 3, 4, 8)
# The front-ends import torch, and depend less on the number of ranks than the collectives. In
# shared memory they do not depend on the MPI; over messages each MPI has a number of its own.
FRONT_ENDS = ("tests/mpi/training", "tests/mpi/tools")
FRONT_END_RANKS = {
    "mpi": {"short": (2,), "mpich": (1, 4), "openmpi": ()},
    "messages": {"short": (), "mpich": (4,), "openmpi": (2,)},
}
# The rest has what is marked `every_size` on so many, which make jobs of every smaller number; on
# MPICH: it is the engine that knows the number of ranks, and not the MPI.
EVERY_SIZE = 8
# MPICH's ranks spin where others need the core, unless this makes them sleep. They spin as users'
# do in the parts that launch jobs.
SLEEP = {"mpich": ("env", "MPIR_CVAR_ENABLE_HEAVY_YIELD=1")}


@dataclass
class Command:
    """One command of a part; `counts`: its output tells how many tests it executed."""

    name: str
    argv: list[str]
    timeout: float
    counts: bool = True
    optional: bool = False  # it may find that it has no test to execute
    ranks: int = 0  # > 0: the output of every rank is in a log of its own
    lanes: int = 1  # so many of those that follow each other may run at a time: they wait a lot
    shown: str = ""  # the lines of rank 0's log that begin so are printed

    def logs(self) -> list[Path]:
        """Return the log of the command, and those of its ranks."""
        log = LOGS / f"{self.name}.log"
        return [log, *(log.with_suffix(f".{rank}.log") for rank in range(self.ranks))]


@dataclass(frozen=True)
class Launcher:
    """An MPI by its name, and its command that launches ranks."""

    name: str
    mpiexec: list[str]


def c_tests(flavour: str, short: bool) -> list[str]:
    """Return the names of the C tests of the short run, or of the rest, that the flavour has."""
    tests = []
    for path in sorted((ROOT / "tests/c").glob("test_*.c")):
        text = path.read_text()
        found = SHORT_C.search(text)
        names = found[1].split() if found else []
        possible = FLAVOURS if STARTS_THREADS.search(text) else FLAVOURS[:2]
        if unknown := set(names) - set(possible):
            raise ValueError(f"{path.name}: the short run has it not for {', '.join(unknown)}")
        if flavour in possible and (flavour in names) == short:
            tests.append(path.stem)
    return tests


def marked(folder: str, marker: str) -> list[str]:
    """Return the files of a folder that have the marker, for the whole file or for one test."""
    files = sorted((ROOT / folder).rglob("test_*.py"))
    mark = re.compile(rf"\bpytest\.mark\.{marker}\b")
    return [str(path.relative_to(ROOT)) for path in files if mark.search(path.read_text())]


def c_part(flavour: str, short: bool, timeout: float) -> list[Command]:
    """Build tests/c/test_*.c with the engine and run each."""
    tests = c_tests(flavour, short)
    make = ["make", "-s", "-k", "-j2", *(f"build/{flavour}/{test}" for test in tests)]
    # TSan wants its shadow memory where address randomisation may have put a library.
    prefix = ["setarch", "-R"] if flavour == "tsan" and shutil.which("setarch") else []
    runs = [
        Command(f"{flavour}-{t}", [*prefix, f"build/{flavour}/{t}"], timeout, lanes=3)
        for t in tests
    ]
    return [Command(f"{flavour}-build", make, 900, counts=False), *runs]


def pytest_part(
    name: str, mpi: Launcher, short: bool, timeout: float, folder: str
) -> list[Command]:
    """Run a folder's tests, several at a time, and then those that others would disturb.

    Those that use no MPI run with one of them.
    """
    # pytest-mpi would skip a test without ranks that has a parameter of the name "mpi".
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:pytest_mpi"]
    chosen = "not long" if short else "long"
    if mpi.name != "mpich":
        chosen += " and not without_mpi"
    crowd = ["-m", f"{chosen} and not alone", "-n", "2", "--dist", "loadfile", folder]
    commands = [Command(name, [*pytest, *crowd], timeout, optional=True)]
    if files := marked(folder, "alone"):
        alone = ["-m", f"{chosen} and alone", *files]
        commands.append(Command(f"{name}-alone", [*pytest, *alone], timeout, optional=True))
    return commands


def on_ranks(name: str, mpi: Launcher, size: int, timeout: float, *words: str) -> Command:
    """Run tests under mpiexec; `words` are pytest's, folders among them."""
    sleep = SLEEP.get(mpi.name, ())
    argv = [
        *(*sleep, *mpi.mpiexec, "-n", str(size)),
        *(sys.executable, "tests/mpi_rank.py", str(LOGS / f"{name}-{size}"), "-v", "--with-mpi"),
        *words,
    ]
    return Command(f"{name}-{size}", argv, timeout, ranks=size, lanes=2 if sleep else 1)


def mpi_part(
    name: str, mpi: Launcher, sizes: tuple[int, ...], short: bool, timeout: float, *options: str
) -> list[Command]:
    """Run tests/mpi, once for each number of ranks, and the front-ends' beside the others."""
    without = [f"--ignore={folder}" for folder in FRONT_ENDS]
    chosen = (
        ("-m", "not long") if short else () if mpi.name == "mpich" else ("-m", "not every_size")
    )
    usual = sizes == SIZES[name][not short]
    front_ends = FRONT_END_RANKS[name]["short" if short else mpi.name]
    if not usual:
        front_ends = tuple(size for size in sizes if size <= max(front_ends, default=0))
    words = (*options, *chosen)
    commands = []
    for size in sorted({*sizes, *front_ends}, reverse=True):  # what takes long begins
        if size in front_ends:
            commands.append(on_ranks(f"{name}-training", mpi, size, timeout, *words, *FRONT_ENDS))
        if size in sizes:
            commands.append(on_ranks(name, mpi, size, timeout, *words, *without, "tests/mpi"))
    if usual and not short and mpi.name == "mpich" and EVERY_SIZE not in sizes:
        words = (*options, "-m", "every_size", *marked("tests/mpi", "every_size"))
        commands.append(on_ranks(f"{name}-every-size", mpi, EVERY_SIZE, timeout, *words))
    return commands


def transport_part(mpi: Launcher, short: bool) -> list[Command]:
    """Build tests/mpi_c/test_*.c with the MPI's compiler; run each on ranks, or by pytest."""
    make = ["make", "-s", "-k", "-j2", "tests-mpi_c", f"MPI={mpi.name}"]
    program = f"build/{mpi.name}/test_transport"
    runs = [
        Command(f"transport-{size}", [*mpi.mpiexec, "-n", str(size), program], 120)
        for size in SIZES["transport"][not short]
    ]
    others = [] if short else pytest_part("transport-others", mpi, True, 120, "tests/mpi_c")
    return [Command("transport-build", make, 120, counts=False), *runs, *others]


def oracle_part(mpi: Launcher, short: bool) -> list[Command]:
    """Run mpi4py's tests of collectives with wagma's sums, after they were downloaded.

    On more than two ranks, where an MPI that spins is slow, these are only those of Allreduce: the
    others are MPI's alone.
    """
    commands = [
        Command("oracle-fetch", [sys.executable, "tests/oracle/fetch.py"], 240, counts=False)
    ]
    for size in SIZES["oracle"][not short]:
        options = ["-k", "Allreduce or communicator"] if size > 2 else []
        commands.append(on_ranks("oracle", mpi, size, 240, *options, "tests/oracle"))
        commands[-1].shown = "oracle"
    return commands


def all_parts(mpi: Launcher, short: bool, sizes: tuple[int, ...] = ()) -> dict[str, list[Command]]:
    """Return every part, in the order in which they run: quick and fundamental ones first."""
    mpi_sizes, message_sizes = (sizes or SIZES[name][not short] for name in ("mpi", "messages"))
    explore = [sys.executable, "tests/explore/run.py", "--short" if short else "--quick"]
    over_messages = ("--transport", "mpi")
    return {
        "c": c_part("c", short, 120),
        "python": pytest_part("python", mpi, short, 900, "tests/python"),
        "transport": transport_part(mpi, short),
        "mpi": mpi_part("mpi", mpi, mpi_sizes, short, 900),
        "messages": mpi_part("messages", mpi, message_sizes, short, 900, *over_messages),
        "oracle": oracle_part(mpi, short),
        "launch": pytest_part("launch", mpi, short, 900, "tests/launch"),
        "training": pytest_part("training", mpi, short, 900, "tests/training"),
        "hosts": pytest_part("hosts", mpi, short, 900, "tests/hosts"),
        "install": pytest_part("install", mpi, short, 900, "tests/install"),
        "asan": c_part("asan", short, 180),
        "tsan": c_part("tsan", short, 240),
        "explore": [Command("explore", explore, 1800)],
    }
