"""List the parts that `make test` and `make test-all` run, each as a list of commands.

`make test` is the short run: something of every part. `make test-all` has the rest: other C tests,
other numbers of ranks, and the tests that are marked `long`. What lies in which folder of tests/
does not matter here: files say by markers how they are launched (pyproject.toml lists these).
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/test-logs"

# A C test names in such a comment the flavours in which the short run has it: compiled as for users
# ("c"), and under a sanitizer ("asan", "tsan").
SHORT_C = re.compile(r"^/\* short run: (.+) \*/$", re.MULTILINE)
# A C test with this comment is linked with objects of a C++ compiler, which a machine may lack.
CXX = os.environ.get("CXX", "g++")  # as make has it
NEEDS_CXX = "/* needs a C++ compiler */"
FLAVOURS = ("c", "asan", "tsan")
# What starts threads, in a C test itself, in one that it includes, and in tests/engine/support.h:
# the others have nothing for the thread sanitizer.
STARTS_THREADS = re.compile(
    r'\b(pthread_create|team_start|cast_open)\b|^#include "test_.*_threads', re.M
)

# How a file of Python tests is launched, by its marker: its part. Without one it is of "python".
LAUNCHES = ("mpi", "oracle", "transport", "launch", "training", "hosts", "install", "slurm")
# What chooses for itself what it talks through runs once, in the other of the two parts.
ONCE = {"mpi": "messages_only", "messages": "memory_only"}

# Numbers of ranks: of the short run, and of the rest.
SIZES = {
    "transport": ((2, 3), (1, 4)),
    "mpi": ((4,), (1, 2, 8)),
    "messages": ((3,), (1, 2, 4)),
    "oracle": ((2,), (1, 2, 3, 4)),
}
RANKS = (1, 2, 3, 4, 8)
# The front-ends import torch, and depend less on the number of ranks than the collectives, but for
# what is marked `counts_ranks`. In shared memory they do not depend on the MPI; over messages each
# MPI has a number of its own.
FRONT_ENDS = ("tests/training/", "tests/tools/")
FRONT_END_RANKS = {
    "mpi": {"short": (2,), "mpich": (1, 4), "openmpi": ()},
    "messages": {"short": (), "mpich": (4,), "openmpi": (2,)},
}
# The rest has what is marked `every_size` on so many, which make jobs of every smaller number; on
# MPICH: it is the engine that knows the number of ranks, and not the MPI.
EVERY_SIZE = 8
# With arrays on simulated GPUs; `make test RANKS=3` is for them, too.
GPU_RANKS = {"short": (), "rest": (1, 2, 4, 8)}
# MPICH's ranks spin where others need the core, unless this makes them sleep. They spin as users'
# do in the parts that launch jobs.
SLEEP = {"mpich": ("env", "MPIR_CVAR_ENABLE_HEAVY_YIELD=1")}
# Parts that run at a time: tests often wait. Ranks that spin leave no core to others.
AT_A_TIME = {"mpich": 2, "openmpi": 1}


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
    for path in sorted((ROOT / "tests/engine").glob("test_*.c")):
        text = path.read_text()
        found = SHORT_C.search(text)
        names = found[1].split() if found else []
        possible = FLAVOURS if STARTS_THREADS.search(text) else FLAVOURS[:2]
        if unknown := set(names) - set(possible):
            raise ValueError(f"{path.name}: the short run has it not for {', '.join(unknown)}")
        if flavour in possible and (flavour in names) == short:
            tests.append(path.stem)
    return tests


def needs_cxx(test: str) -> bool:
    """Return whether a C test needs a C++ compiler."""
    return NEEDS_CXX in (ROOT / f"tests/engine/{test}.c").read_text()


def markers(path: Path) -> set[str]:
    """Return the markers in a file of Python tests, of the whole file or of one test."""
    return set(re.findall(r"\bpytest\.mark\.(\w+)", path.read_text()))


def launch_of(path: Path) -> str:
    """Return the part that launches a file of Python tests.

    Raises:
        ValueError: it has the markers of several.
    """
    found = sorted(markers(path).intersection(LAUNCHES))
    if len(found) > 1:
        raise ValueError(f"{path.name}: is of several parts: {', '.join(found)}")
    return found[0] if found else "python"


def launched(part: str) -> list[str]:
    """Return the files of Python tests that a part launches."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if launch_of(path) == part]


def marked(files: list[str], marker: str) -> list[str]:
    """Return those of the files that have the marker, for the whole file or for one test."""
    return [file for file in files if marker in markers(ROOT / file)]


def without(files: list[str], others: list[str]) -> list[str]:
    """Return those of the files that are none of the others."""
    return [file for file in files if file not in others]


def c_part(flavour: str, short: bool, timeout: float) -> list[Command]:
    """Build tests/engine/test_*.c with the engine and run each.

    Where there is no C++ compiler, the log of a test that needs one says so.
    """
    tests = c_tests(flavour, short)
    skipped = [] if shutil.which(CXX) else [t for t in tests if needs_cxx(t)]
    tests = [t for t in tests if t not in skipped]
    make = ["make", "-s", "-k", "-j2", *(f"build/{flavour}/{test}" for test in tests)]
    # TSan wants its shadow memory where address randomisation may have put a library.
    prefix = ["setarch", "-R"] if flavour == "tsan" and shutil.which("setarch") else []
    runs = [
        Command(f"{flavour}-{t}", [*prefix, f"build/{flavour}/{t}"], timeout, lanes=3)
        for t in tests
    ]
    said = f"skipped: the C++ compiler {CXX} was not found"
    runs += [Command(f"{flavour}-{t}", ["echo", said], timeout, counts=False) for t in skipped]
    return [Command(f"{flavour}-build", make, 900, counts=False), *runs]


def pytest_command(
    name: str, mpi: Launcher, short: bool, timeout: float, files: list[str], *words: str
) -> Command:
    """Run those of the files' tests that belong to the run; `words`: more of pytest's options.

    Those that use no MPI run with one of them.
    """
    chosen = "not long" if short else "long"
    if mpi.name != "mpich":
        chosen += " and not without_mpi"
    # pytest-mpi would skip a test without ranks that has a parameter of the name "mpi".
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:pytest_mpi"]
    expression, *others = words
    argv = [*pytest, "-m", f"{chosen} and {expression}", *others, *files]
    return Command(name, argv, timeout, optional=True)


def pytest_part(
    name: str, mpi: Launcher, short: bool, timeout: float, part: str, workers: int = 2
) -> list[Command]:
    """Run a part's tests, but for those that others would disturb.

    Each worker imports all files: more than one is for tests that take long.
    """
    several = ("-n", str(workers), "--dist", "loadfile") if workers > 1 else ()
    words = ("not alone", *several)
    return [pytest_command(name, mpi, short, timeout, launched(part), *words)]


def python_part(mpi: Launcher, short: bool) -> list[Command]:
    """Run the tests of pytest's own process, those of the front-ends beside the others."""
    files = launched("python")
    front_ends = [file for file in files if file.startswith(FRONT_ENDS)]
    chosen = {"python-front-ends": front_ends, "python": without(files, front_ends)}
    commands = [
        pytest_command(name, mpi, short, 900, some, "not alone") for name, some in chosen.items()
    ]
    for command in commands:
        command.lanes = 2
    return commands


def alone(mpi: Launcher, short: bool, parts: Iterable[str]) -> list[Command]:
    """Run the tests of parts that others would disturb, one after the other."""
    files = [file for part in parts for file in marked(launched(part), "alone")]
    return [pytest_command("alone", mpi, short, 1800, files, "alone")] if files else []


def on_ranks(name: str, mpi: Launcher, size: int, timeout: float, *words: str) -> Command:
    """Run tests under mpiexec; `words` are pytest's, files among them."""
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
    """Run what is marked `mpi`, once for each number of ranks, and front-ends beside the others.

    The short run has what counts ranks among the front-ends, for both import torch.
    """
    files = launched("mpi")
    files = without(files, marked(files, ONCE[name]))
    counted = marked(files, "counts_ranks")
    front_ends = [file for file in files if file.startswith(FRONT_ENDS) and file not in counted]
    front_ends += counted if short else []
    others = without(files, front_ends)
    chosen = (
        ("-m", "not long") if short else () if mpi.name == "mpich" else ("-m", "not every_size")
    )
    usual = sizes == SIZES[name][not short]
    torch_sizes = FRONT_END_RANKS[name]["short" if short else mpi.name]
    if not usual:
        torch_sizes = tuple(size for size in sizes if size <= max(torch_sizes, default=0))
    words = (*options, *chosen)
    commands = []
    for size in sorted({*sizes, *torch_sizes}, reverse=True):  # what takes long begins
        if size in torch_sizes:
            commands.append(on_ranks(f"{name}-training", mpi, size, timeout, *words, *front_ends))
        if size in sizes:
            commands.append(on_ranks(name, mpi, size, timeout, *words, *others))
    if name == "mpi" and mpi.name == "mpich":
        words = ("--arrays", "gpu", *chosen, *marked(files, "any_arrays"))
        numbers = GPU_RANKS["short" if short else "rest"] if usual else sizes
        commands += [on_ranks("mpi-gpus", mpi, size, timeout, *words) for size in numbers]
    if usual and not short and mpi.name == "mpich" and EVERY_SIZE not in sizes:
        words = (*options, "-m", "every_size", *marked(files, "every_size"))
        commands.append(on_ranks(f"{name}-every-size", mpi, EVERY_SIZE, timeout, *words))
    return commands


def transport_part(mpi: Launcher, short: bool) -> list[Command]:
    """Build tests/engine/transport/ with the MPI's compiler; run its programs, or let pytest."""
    make = ["make", "-s", "-k", "-j2", "tests-transport", f"MPI={mpi.name}"]
    program = f"build/{mpi.name}/test_transport"
    runs = [
        Command(f"transport-{size}", [*mpi.mpiexec, "-n", str(size), program], 120)
        for size in SIZES["transport"][not short]
    ]
    others = [] if short else pytest_part("transport-others", mpi, True, 120, "transport")
    return [Command("transport-build", make, 120, counts=False), *runs, *others]


def oracle_part(mpi: Launcher, short: bool) -> list[Command]:
    """Run mpi4py's tests of collectives with wagma's sums, after they were downloaded.

    In the short run, and on more than two ranks, where an MPI that spins is slow, these are only
    those of Allreduce: the others are MPI's alone.
    """
    fetch = [sys.executable, "tests/collectives/oracle/fetch.py"]
    commands = [Command("oracle-fetch", fetch, 240, counts=False)]
    for size in SIZES["oracle"][not short]:
        options = ["-k", "Allreduce or communicator"] if short or size > 2 else []
        commands.append(on_ranks("oracle", mpi, size, 240, *options, *launched("oracle")))
        commands[-1].shown = "oracle"
    return commands


def all_parts(mpi: Launcher, short: bool, sizes: tuple[int, ...] = ()) -> dict[str, list[Command]]:
    """Return every part, in the order in which they begin: those that take long early."""
    mpi_sizes, message_sizes = (sizes or SIZES[name][not short] for name in ("mpi", "messages"))
    explore = [sys.executable, "tests/explore/run.py", "--short" if short else "--quick"]
    over_messages = ("--transport", "mpi")
    workers = 1 if short else 2
    patience = 900 if short else 1800  # for jobs of ranks, two parts of which share the cores
    return {
        "c": c_part("c", short, 120),
        "mpi": mpi_part("mpi", mpi, mpi_sizes, short, patience),
        "python": python_part(mpi, short),
        "messages": mpi_part("messages", mpi, message_sizes, short, patience, *over_messages),
        "launch": pytest_part("launch", mpi, short, 900, "launch"),
        "training": pytest_part("training", mpi, short, 900, "training", workers),
        "transport": transport_part(mpi, short),
        "oracle": oracle_part(mpi, short),
        "hosts": pytest_part("hosts", mpi, short, 900, "hosts", workers),
        "install": pytest_part("install", mpi, short, 900, "install", workers),
        "asan": c_part("asan", short, 180),
        "tsan": c_part("tsan", short, 240),
        "explore": [Command("explore", explore, 1800)],
    }
