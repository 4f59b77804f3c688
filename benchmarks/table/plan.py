"""What is measured: rows, goals, sizes and repetitions. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wagma.memory import Room, shared_memory_of

from ..memory import MPI_BUFFERS, arrays
from ..settings import Settings

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

COST_SIZES = (4, 64)
SMALL_RANKS = 2  # the goals of small arrays are for two pinned ranks
ARRIVAL_SIZE = 1 * MIB
LATENESS = (1e-3, 10e-3)  # of the rank that comes late
LARGE = ("all", "private", "quorum1", "out-of-place")  # rows of large arrays
LOOPS = ("c", "python")  # where the loop around small arrays runs
TESTS = 10  # calls of MPI_Test and Request.test while computing
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
_ALL: dict[str, Any] = {"quorum": "all", "form": "in-place"}
_ONE: dict[str, Any] = {"quorum": 1, "form": "in-place", "grace": GRACE}

# What a series asks for; see Settings.
WAGMA: Mapping[str, Mapping[str, Any]] = {
    "wagma all": _ALL,
    "wagma private": _ALL | {"form": "private"},
    "wagma 1": _ONE,
    "wagma 1, grace=auto": _ONE | {"grace": "auto"},
    "wagma out of place": _ONE | {"form": "out-of-place"},
    "wagma over MPI": _ALL | {"transport": "mpi"},
    "wagma pairs over MPI": _ALL | {"transport": "mpi", "group_size": 2},
}

# How many times as fast as MPI_Allreduce each series is to be, by the bytes of the arrays.
# Messages that carry versions, and ranks that take part while they compute, may cost something.
GOALS: Mapping[str, Mapping[int, float]] = {
    "wagma all": {
        4: 1.5,
        **dict.fromkeys((1 * KIB, 4 * KIB, 16 * KIB), 2.0),
        **dict.fromkeys((1 * MIB, 16 * MIB), 3.0),
        100 * MIB: 4.0,
    },
    "wagma private": {1 * MIB: 1.0, 16 * MIB: 1.0, 100 * MIB: 1.8},
    "wagma 1": {1 * MIB: 1.5, 16 * MIB: 1.5, 100 * MIB: 2.5},
    "wagma out of place": dict.fromkeys((1 * MIB, 16 * MIB, 100 * MIB), 3.0),
    "wagma over MPI": {
        64 * KIB: 1 / 1.5,
        **dict.fromkeys((1 * MIB, 16 * MIB, 100 * MIB), 1 / 1.15),
    },
    "wagma pairs over MPI": {64 * KIB: 1.0, 1 * MIB: 1.0, 16 * MIB: 1.0},
}


@dataclass(frozen=True)
class Case:
    """Series that are measured beside each other, in blocks, on arrays of the same size."""

    bytes: int  # of each array, a multiple of 4
    wagma: tuple[str, ...]  # names of its series, of WAGMA
    with_mpi: bool  # the forms of MPI_Allreduce are measured beside them
    loop: str  # "c" or "python": where the loop around the calls runs
    blocks: int  # of each series
    iterations: int  # counted ones in a block
    warmup: int  # uncounted ones at the start of a block
    lateness: float = 0.0  # seconds that one rank, drawn anew, comes late


def mpi_sizes(sizes: Sequence[int], ranks: int) -> list[int]:
    """Return those of `sizes` that so many ranks reduce over MPI: more ranks take longer."""
    largest = 100 * MIB if ranks <= 2 else 16 * MIB if ranks <= 4 else MIB
    return [size for size in sizes if size <= largest]


def _repetitions(size: int, ranks: int, quick: bool) -> tuple[int, int]:
    """Return blocks and iterations for arrays of `size` bytes."""
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
    """Return the memory that a case needs; its series share their inputs and MPI's buffers."""
    shared, private = 0, 1 + MPI_BUFFERS * with_mpi
    for name in wagma:
        settings = Settings("allreduce", (size,), **WAGMA[name])
        over = "mpi" if settings.transport == "mpi" else "shm"
        in_segment, every = arrays(settings, ranks, over)
        shared += in_segment
        private += every - in_segment - 1
    in_shared = shared * shared_memory_of(size) * ranks
    return Room(in_shared, in_shared + private * size * ranks)


def _wanted(
    rows: Collection[str],
    ranks: int,
    small: Sequence[int],
    large: Sequence[int],
    over_mpi: Sequence[int],
    with_mpi: bool,
) -> Iterator[tuple[tuple[int, str, float, str], str, bool]]:
    """Yield what rows ask for: a case, one of its series, and whether MPI is beside it.

    A case is told by its bytes, its loop, its lateness, and the series that is measured alone.
    """
    for loop in LOOPS if ranks == SMALL_RANKS else ():
        for size in COST_SIZES if "cost" in rows else ():
            yield (size, loop, 0.0, ""), "wagma all", False
            yield (size, loop, 0.0, ""), "wagma 1", False
        for size in small if "small" in rows and with_mpi else ():
            yield (size, loop, 0.0, ""), COMPARED["small"], True
    if not with_mpi:
        return
    for row in LARGE:
        for size in large if row in rows else ():
            yield (size, "python", 0.0, ""), COMPARED[row], True
    for lateness in LATENESS if "arrival" in rows else ():
        yield (ARRIVAL_SIZE, "python", lateness, ""), COMPARED["arrival"], True
    for row, series in ALONE.items():
        fits = row in rows and (row != "mpi-groups" or 2 < ranks <= 4)
        for size in mpi_sizes(over_mpi, ranks) if fits else ():
            yield (size, "python", 0.0, series), series, True


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
    """Return the cases of a launch, and why some of what was asked for is not among them.

    `rows` are of ROWS. The bytes of arrays are `small` in the rows of small arrays, `large` in
    those of LARGE, and `over_mpi` in those of ALONE. `room` is the free memory.
    """
    wanted: dict[tuple[int, str, float, str], dict[str, bool]] = defaultdict(dict)
    for case, series, compared in _wanted(rows, ranks, small, large, over_mpi, with_mpi):
        wanted[case][series] = compared or wanted[case].get(series, False)
    chosen, left_out = [], []
    for (size, loop, lateness, _), together in sorted(wanted.items(), key=lambda item: item[0]):
        wagma, beside_mpi = tuple(together), any(together.values())
        needed = required_bytes(wagma, beside_mpi, size, ranks)
        if needed.shared > room.shared or needed.total > room.total:
            left_out.append(
                f"{ranks} ranks, {size} bytes: {needed.shared >> 20} MiB of /dev/shm and "
                f"{needed.total >> 20} MiB of memory are needed, {room.shared >> 20} and "
                f"{room.total >> 20} MiB are free"
            )
            continue
        blocks, iterations = _repetitions(size, ranks, quick)
        warmup = max(1, iterations // 10)
        chosen.append(Case(size, wagma, beside_mpi, loop, blocks, iterations, warmup, lateness))
    return chosen, left_out


def _repeated(
    kind: str, size: int, passes: int, counted: int, warmup: int, **more: Any
) -> Settings:
    """Return settings of one size with checked results; numbers are totals of all passes."""
    return Settings(
        kind=kind,
        sizes=(size,),
        iterations=counted,
        iterations_large=counted,
        warmup=warmup,
        warmup_large=warmup,
        passes=passes,
        validate=True,
        **more,
    )


def settings(case: Case, corrupt: str | None) -> Settings:
    """Return the benchmark's settings of a case; its series of wagma differ by `WAGMA`."""
    blocks = case.blocks
    return _repeated(
        *("allreduce", case.bytes, blocks, blocks * case.iterations, blocks * case.warmup),
        arrival=f"one-late:{1e3 * case.lateness:g}ms" if case.lateness else "together",
        baselines=("mpi",) if case.with_mpi else (),
        loop=case.loop,
        corrupt=corrupt,
    )


def posted(kind: str, quick: bool, corrupt: str | None) -> Settings:
    """Return the settings of posted calls of a kind in POSTED; if quick, fewer and smaller ones."""
    size, passes, counted = (1 * MIB, 2, 4) if quick else (16 * MIB, 4, 32)
    times: dict[str, Any] = {"compute": 0.05, "lateness": 0.04}
    if kind == "iallreduce":
        times = {"tests": TESTS}
    return _repeated(
        *(kind, size, passes, counted, passes),
        baselines=("mpi-nonblocking",),
        corrupt=corrupt,
        **times,
    )
