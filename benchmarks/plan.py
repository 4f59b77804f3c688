"""What is measured: rows, goals, sizes and repetitions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "COMPARED",
    "GOALS",
    "LATE_MAX",
    "ROWS",
    "Case",
    "Fastest",
    "Overlap",
    "Room",
    "Scenario",
    "cases",
    "fastest",
    "overlap",
    "required_bytes",
    "scenario",
]

KIB, MIB = 1 << 10, 1 << 20

ROWS = {
    "all": 'quorum="all", large arrays of empty(), beside MPI_Allreduce',
    "private": 'quorum="all", large arrays of numpy, beside MPI_Allreduce',
    "small": 'quorum="all", small numpy arrays, beside mpi4py\'s Allreduce; two ranks',
    "quorum1": "quorum=1, grace=0.1, large arrays, beside MPI_Allreduce",
    "out-of-place": "the same with next_contribution() and Outcome.result, beside MPI_Allreduce",
    "cost": "time of a call with 4 bytes",
    "grace": 'late share with grace="auto" and jitter',
    "straggler": "time in calls while another rank sleeps, beside MPI_Allreduce",
    "iallreduce": "time in posting and waiting while another rank posts late, beside "
    "MPI_Iallreduce",
    "k-of-p": 'late="skip": time per version of the fastest K of P ranks, beside theory',
    "passive": "threads and CPU time between calls",
    "memory": "memory per rank",
    "binding": "time of a call with a single rank",
}

SMALL_SIZES = (4, 1 * KIB, 4 * KIB, 16 * KIB)
LARGE_SIZES = (1 * MIB, 16 * MIB, 100 * MIB)
COST_SIZE = 4
SMALL_RANKS = 2  # the goals of small arrays are for two pinned ranks

# (series, bytes) -> how many times faster than MPI_Allreduce.
GOALS = {
    ("wagma all", 4): 1.5,
    ("wagma all", 1 * KIB): 2.0,
    ("wagma all", 4 * KIB): 2.0,
    ("wagma all", 16 * KIB): 2.0,
    ("wagma all", 1 * MIB): 3.0,
    ("wagma all", 16 * MIB): 3.0,
    ("wagma all", 100 * MIB): 4.0,
    ("wagma private", 1 * MIB): 1.0,
    ("wagma private", 16 * MIB): 1.0,
    ("wagma private", 100 * MIB): 1.8,
    ("wagma 1", 1 * MIB): 1.5,
    ("wagma 1", 16 * MIB): 1.5,
    ("wagma 1", 100 * MIB): 2.5,
    ("wagma out of place", 1 * MIB): 3.0,
    ("wagma out of place", 16 * MIB): 3.0,
    ("wagma out of place", 100 * MIB): 3.0,
}
LATE_MAX = 0.01  # a wait-avoiding row with more late contributions waited less than it should have

LARGE_FORMS = ("mpi in place", "mpi two buffers")
SMALL_FORMS = (*LARGE_FORMS, "mpi in place, typed", "mpi two buffers, typed")
COMPARED = {
    "all": "wagma all",
    "private": "wagma private",
    "small": "wagma all",
    "quorum1": "wagma 1",
    "out-of-place": "wagma out of place",
}

# Arrays of `bytes` in shared memory and in private memory, per rank, for each series.
_SHARED = {"wagma all": 1, "wagma private": 1, "wagma 1": 6, "wagma out of place": 6}
_PRIVATE = {"wagma private": 1, "mpi in place": 1, "mpi two buffers": 2}


@dataclass(frozen=True)
class Case:
    """Series that are measured beside each other, in blocks, on arrays of the same size.

    Attributes:
        bytes: of each array, a multiple of 4.
        series: names, see compare.py.
        blocks: of each series.
        iterations: counted ones in a block.
        warmup: uncounted ones at the start of a block.
    """

    bytes: int
    series: tuple[str, ...]
    blocks: int
    iterations: int
    warmup: int


@dataclass(frozen=True)
class Scenario:
    """Runs in which ranks compute (sleep) between their calls; times in seconds."""

    bytes: int = 1 * MIB
    grace_versions: int = 100
    grace_step: float = 0.05
    grace_jitter: float = 0.03  # standard deviation, as a share of the step
    versions: int = 200  # of one handle: with more the sleeper would fall behind by the window
    repeats: int = 3
    period: int = 50
    sleep: float = 0.3
    step: float = 0.005
    window: int = 128
    seed: int = 1


@dataclass(frozen=True)
class Overlap:
    """Posted calls, with sleep between posting and waiting; times in seconds.

    In every version one rank, drawn anew, is `lateness` late. `iterations` are counted in each of
    `blocks`, after `warmup` that are not.
    """

    bytes: int = 16 * MIB
    computing: float = 0.05
    lateness: float = 0.04
    blocks: int = 4
    iterations: int = 8
    warmup: int = 1
    seed: int = 1


@dataclass(frozen=True)
class Fastest:
    """Versions that the fastest K ranks start; times in seconds.

    Attributes:
        mean: of the exponential times of computing.
        slowdown: of the slow rank, where there is one.
        rounds: calls before, that all ranks make together; the first is not counted.
        window: so large that no rank is ever kept from going on.
    """

    bytes: int = 64 * KIB
    mean: float = 0.02
    slowdown: float = 2.0
    versions: int = 400
    rounds: int = 21
    window: int = 128
    seed: int = 1


@dataclass(frozen=True)
class Room:
    """Free memory in bytes."""

    shared: int
    total: int


def _repetitions(size: int, quick: bool) -> tuple[int, int]:
    """(blocks, iterations) for arrays of `size` bytes."""
    if quick:
        return (2, 10) if size < MIB else (2, 3)
    if size < MIB:
        return 10, 100
    if size < 16 * MIB:
        return 10, 10
    return (6, 6) if size < 100 * MIB else (4, 4)


def required_bytes(series: Iterable[str], size: int, ranks: int) -> Room:
    """Memory that a case needs; every handle also reads a private array when it is made."""
    series = tuple(series)
    shared = sum(_SHARED.get(name, 0) for name in series) * size * ranks
    private = 1 + sum(_PRIVATE.get(name.removesuffix(", typed"), 0) for name in series)
    return Room(shared, shared + private * size * ranks)


def cases(
    rows: Collection[str],
    ranks: int,
    small: Sequence[int],
    large: Sequence[int],
    *,
    with_mpi: bool,
    quick: bool,
    room: Room,
) -> tuple[list[Case], list[str]]:
    """The cases of a launch, and why some of what was asked for is not among them."""
    wanted: dict[int, list[str]] = {}

    def add(size: int, *series: str) -> None:
        names = wanted.setdefault(size, [])
        names.extend(name for name in series if name not in names)

    if "cost" in rows and ranks == SMALL_RANKS:
        add(COST_SIZE, "wagma all", "wagma 1")
    if "small" in rows and ranks == SMALL_RANKS and with_mpi:
        for size in small:
            add(size, "wagma all", *SMALL_FORMS)
    for row in ("all", "private", "quorum1", "out-of-place"):
        if row in rows and with_mpi:
            for size in large:
                add(size, COMPARED[row], *LARGE_FORMS)
    chosen, left_out = [], []
    for size, names in sorted(wanted.items()):
        needed = required_bytes(names, size, ranks)
        if needed.shared > room.shared or needed.total > room.total:
            left_out.append(
                f"{ranks} ranks, {size} bytes: {needed.shared >> 20} MiB of /dev/shm and "
                f"{needed.total >> 20} MiB of memory are needed, {room.shared >> 20} and "
                f"{room.total >> 20} MiB are free"
            )
            continue
        blocks, iterations = _repetitions(size, quick)
        chosen.append(Case(size, tuple(names), blocks, iterations, max(1, iterations // 10)))
    return chosen, left_out


def scenario(quick: bool) -> Scenario:
    """The scenarios; the short ones have the same times but fewer versions."""
    return Scenario(grace_versions=20, versions=100, repeats=1) if quick else Scenario()


def overlap(quick: bool) -> Overlap:
    """Posted calls; the short ones have fewer of them and smaller arrays."""
    return Overlap(bytes=1 * MIB, blocks=2, iterations=2) if quick else Overlap()


def fastest(quick: bool) -> Fastest:
    """The fastest K; the short ones have fewer versions, that take less time."""
    return Fastest(versions=40, mean=0.005) if quick else Fastest()
