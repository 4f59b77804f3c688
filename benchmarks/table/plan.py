"""What is measured: rows, goals, sizes and repetitions. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wagma.memory import Room, shared_memory_of

from ..settings import Settings

__all__ = [
    "ALONE",
    "COMPARED",
    "COST_SIZES",
    "GOALS",
    "LATENESS",
    "LATE_MAX",
    "LOOPS",
    "MPI_SIZES",
    "OVER_MPI",
    "POSTED",
    "ROWS",
    "SCENARIOS",
    "WAGMA",
    "Case",
    "cases",
    "mpi_sizes",
    "posted",
    "required_bytes",
    "settings",
]

KIB, MIB = 1 << 10, 1 << 20

ROWS = {
    "all": 'quorum="all", large arrays of empty(), beside MPI_Allreduce',
    "private": 'quorum="all", large arrays of numpy, beside MPI_Allreduce',
    "small": 'quorum="all", small arrays of empty(), from C and from Python, beside MPI_Allreduce; '
    "two ranks",
    "quorum1": "quorum=1, grace=0.1, large arrays, beside MPI_Allreduce",
    "out-of-place": "the same with next_contribution() and Outcome.result, beside MPI_Allreduce",
    "cost": "time of a call with 4 and 64 bytes, from C and from Python",
    "arrival": "quorum=1, one rank late: time of the others, beside MPI_Allreduce",
    "grace": 'late share with grace="auto" and jitter',
    "straggler": "time in calls while another rank sleeps, beside MPI_Allreduce",
    "iallreduce": "what of a posted reduction is hidden by computing, beside MPI_Iallreduce",
    "overlap": "time in posting and waiting while another rank posts late, beside MPI_Iallreduce",
    "k-of-p": 'late="skip": time per version of the fastest K of P ranks, beside theory',
    "mpi": 'transport="mpi", quorum="all", arrays of empty(), beside MPI_Allreduce of the same MPI',
    "mpi-groups": 'transport="mpi", quorum="all", groups of 2, beside MPI_Allreduce of all ranks',
    "mpi-straggler": 'transport="mpi": time in calls while another rank sleeps, beside the same '
    "without it",
    "mpi-idle": 'transport="mpi": CPU time of the progress thread between calls',
    "passive": "threads and CPU time between calls",
    "memory": "memory per rank",
    "binding": "time of a call with a single rank",
}
SCENARIOS = ("grace", "straggler", "k-of-p")  # measured once, with most ranks
POSTED = ("iallreduce", "overlap")  # at every number of ranks, at mpi4py's thread level
OVER_MPI = ("mpi-straggler", "mpi-idle")  # the same

SMALL_SIZES = (4, 1 * KIB, 4 * KIB, 16 * KIB)
LARGE_SIZES = (1 * MIB, 16 * MIB, 100 * MIB)
MPI_SIZES = (64 * KIB, 1 * MIB, 16 * MIB, 100 * MIB)
COST_SIZES = (4, 64)
SMALL_RANKS = 2  # the goals of small arrays are for two pinned ranks
ARRIVAL_SIZE = 1 * MIB
LATENESS = (1e-3, 10e-3)  # of the rank that comes late
LARGE = ("all", "private", "quorum1", "out-of-place")  # rows of large arrays
LOOPS = ("c", "python")  # where the loop around small arrays runs
TESTS = 10  # calls of MPI_Test and Request.test while computing

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
    # Messages that carry versions, and ranks that take part while they compute, may cost so much.
    ("wagma over MPI", 64 * KIB): 1 / 1.5,
    ("wagma over MPI", 1 * MIB): 1 / 1.15,
    ("wagma over MPI", 16 * MIB): 1 / 1.15,
    ("wagma over MPI", 100 * MIB): 1 / 1.15,
    ("wagma pairs over MPI", 64 * KIB): 1.0,
    ("wagma pairs over MPI", 1 * MIB): 1.0,
    ("wagma pairs over MPI", 16 * MIB): 1.0,
}
LATE_MAX = 0.01  # a wait-avoiding row with more late contributions waited less than it should have

COMPARED = {
    "all": "wagma all",
    "private": "wagma private",
    "small": "wagma all",
    "quorum1": "wagma 1",
    "out-of-place": "wagma out of place",
    "arrival": "wagma 1, grace=auto",
}
# The same, but each MPI is compared with its own MPI_Allreduce, and nothing else has a handle then:
# the handles' threads would take each other's cores.
ALONE = {"mpi": "wagma over MPI", "mpi-groups": "wagma pairs over MPI"}

GRACE = 0.1  # seconds: long enough for nobody to be late
# What a series asks for; see Settings.
WAGMA: Mapping[str, Mapping[str, Any]] = {
    "wagma all": {"quorum": "all", "form": "in-place"},
    "wagma private": {"quorum": "all", "form": "private"},
    "wagma 1": {"quorum": 1, "form": "in-place", "grace": GRACE},
    "wagma 1, grace=auto": {"quorum": 1, "form": "in-place", "grace": "auto"},
    "wagma out of place": {"quorum": 1, "form": "out-of-place", "grace": GRACE},
    "wagma over MPI": {"quorum": "all", "form": "in-place", "transport": "mpi"},
    "wagma pairs over MPI": {
        "quorum": "all",
        "form": "in-place",
        "transport": "mpi",
        "group_size": 2,
    },
}

# Arrays of `bytes` in shared memory and in private memory, per rank, for each series.
_SHARED = {
    "wagma all": 1,
    "wagma private": 1,
    "wagma 1": 6,
    "wagma 1, grace=auto": 6,
    "wagma out of place": 6,
}
# Over MPI: the array, and partial sums.
_PRIVATE = {"wagma private": 1, "wagma over MPI": 2, "wagma pairs over MPI": 2}
_MPI = 3  # one in place, two buffers


@dataclass(frozen=True)
class Case:
    """Series that are measured beside each other, in blocks, on arrays of the same size.

    Attributes:
        bytes: of each array, a multiple of 4.
        wagma: names of its series, of WAGMA.
        with_mpi: the forms of MPI_Allreduce are measured beside them.
        loop: "c" or "python": where the loop around the calls runs.
        blocks: of each series.
        iterations: counted ones in a block.
        warmup: uncounted ones at the start of a block.
        lateness: seconds that one rank, drawn anew, comes late.
    """

    bytes: int
    wagma: tuple[str, ...]
    with_mpi: bool
    loop: str
    blocks: int
    iterations: int
    warmup: int
    lateness: float = 0.0


def mpi_sizes(sizes: Sequence[int], ranks: int) -> list[int]:
    """Those of `sizes` that so many ranks reduce over MPI: more ranks take their turns longer."""
    largest = 100 * MIB if ranks <= 2 else 16 * MIB if ranks <= 4 else MIB
    return [size for size in sizes if size <= largest]


def _repetitions(size: int, ranks: int, quick: bool) -> tuple[int, int]:
    """(blocks, iterations) for arrays of `size` bytes."""
    if quick:
        return (2, 10) if size < MIB else (2, 3)
    if ranks > 4:
        return 5, 10
    if size < MIB:
        return 10, 100
    if size < 16 * MIB:
        return 10, 50
    return (6, 6) if size < 100 * MIB else (4, 4)


def required_bytes(wagma: Iterable[str], with_mpi: bool, size: int, ranks: int) -> Room:
    """Memory that a case needs; every handle also reads a private array when it is made."""
    wagma = tuple(wagma)
    shared = sum(_SHARED.get(name, 0) for name in wagma) * shared_memory_of(size) * ranks
    private = 1 + sum(_PRIVATE.get(name, 0) for name in wagma) + (_MPI if with_mpi else 0)
    return Room(shared, shared + private * size * ranks)


@dataclass
class _Wanted:
    """Series of wagma that are measured together, in the order in which rows ask for them."""

    wagma: dict[str, None] = field(default_factory=dict)
    with_mpi: bool = False


def cases(
    rows: Collection[str],
    ranks: int,
    small: Sequence[int],
    large: Sequence[int],
    over_mpi: Sequence[int] = (),
    *,
    with_mpi: bool,
    quick: bool,
    room: Room,
) -> tuple[list[Case], list[str]]:
    """The cases of a launch, and why some of what was asked for is not among them.

    Args:
        rows: of ROWS.
        ranks: of the launch.
        small: bytes of the rows of small arrays.
        large: bytes of LARGE.
        over_mpi: bytes of ALONE.
        with_mpi: MPI_Allreduce can be measured.
        quick: few iterations.
        room: free memory.
    """
    wanted: dict[tuple[int, str, float, str], _Wanted] = defaultdict(_Wanted)

    def add(
        size: int,
        loop: str,
        wagma: str,
        lateness: float = 0.0,
        *,
        compared: bool,
        alone: bool = False,
    ) -> None:
        one = wanted[size, loop, lateness, wagma if alone else ""]
        one.wagma[wagma] = None
        one.with_mpi |= compared

    for loop in LOOPS if ranks == SMALL_RANKS else ():
        for size in COST_SIZES if "cost" in rows else ():
            add(size, loop, "wagma all", compared=False)
            add(size, loop, "wagma 1", compared=False)
        for size in small if "small" in rows and with_mpi else ():
            add(size, loop, COMPARED["small"], compared=True)
    for row in LARGE:
        for size in large if row in rows and with_mpi else ():
            add(size, "python", COMPARED[row], compared=True)
    for lateness in LATENESS if "arrival" in rows and with_mpi else ():
        add(ARRIVAL_SIZE, "python", COMPARED["arrival"], lateness, compared=True)
    for row, series in ALONE.items():
        fits = row in rows and with_mpi and (row != "mpi-groups" or 2 < ranks <= 4)
        for size in mpi_sizes(over_mpi, ranks) if fits else ():
            add(size, "python", series, compared=True, alone=True)
    chosen, left_out = [], []
    for (size, loop, lateness, _), one in sorted(wanted.items(), key=lambda item: item[0]):
        wagma = tuple(one.wagma)
        needed = required_bytes(wagma, one.with_mpi, size, ranks)
        if needed.shared > room.shared or needed.total > room.total:
            left_out.append(
                f"{ranks} ranks, {size} bytes: {needed.shared >> 20} MiB of /dev/shm and "
                f"{needed.total >> 20} MiB of memory are needed, {room.shared >> 20} and "
                f"{room.total >> 20} MiB are free"
            )
            continue
        blocks, iterations = _repetitions(size, ranks, quick)
        warmup = max(1, iterations // 10)
        chosen.append(Case(size, wagma, one.with_mpi, loop, blocks, iterations, warmup, lateness))
    return chosen, left_out


def settings(case: Case, corrupt: str | None) -> Settings:
    """A case as the benchmark is asked for it; its series of wagma differ by `WAGMA`."""
    counted, warmup = case.blocks * case.iterations, case.blocks * case.warmup
    return Settings(
        kind="allreduce",
        sizes=(case.bytes,),
        iterations=counted,
        iterations_large=counted,
        warmup=warmup,
        warmup_large=warmup,
        passes=case.blocks,
        validate=True,
        arrival=f"one-late:{1e3 * case.lateness:g}ms" if case.lateness else "together",
        baselines=("mpi",) if case.with_mpi else (),
        loop=case.loop,
        corrupt=corrupt,
    )


def posted(kind: str, quick: bool, corrupt: str | None) -> Settings:
    """Posted calls, one of POSTED; the short ones have fewer of them and smaller arrays."""
    passes = 2 if quick else 4
    counted = passes * (2 if quick else 8)
    times: dict[str, Any] = {"tests": TESTS}
    if kind == "overlap":
        times = {"compute": 0.05, "lateness": 0.04}
    return Settings(
        kind=kind,
        sizes=(1 * MIB if quick else 16 * MIB,),
        iterations=counted,
        iterations_large=counted,
        warmup=passes,
        warmup_large=passes,
        passes=passes,
        validate=True,
        quorum="all",
        baselines=("mpi-nonblocking",),
        corrupt=corrupt,
        **times,
    )
