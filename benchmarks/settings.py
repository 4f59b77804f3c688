"""What a benchmark was asked to do. Pure."""

from dataclasses import dataclass

LARGE_BYTES = 8192  # OSU's: above, there are fewer iterations


@dataclass(frozen=True)
class Settings:
    """The command line, checked and with defaults filled in; times in seconds, sizes in bytes."""

    kind: str  # one of `kinds.KINDS`
    sizes: tuple[int, ...]  # of the arrays, ascending, each a multiple of the datatype's size
    # of wagma: "float32", "float64", "float16", "bfloat16", "int32" or "int64"
    datatype: str = "float32"
    iterations: int = 1000  # counted ones of each series at each size
    iterations_large: int = 100  # the same above LARGE_BYTES
    warmup: int = 200  # uncounted ones before them
    warmup_large: int = 10  # the same above LARGE_BYTES
    passes: int = 5  # parts into which the iterations of a series are divided; the series alternate
    format: str = "osu"  # "osu", "nccl", "json" or "csv"
    full: bool = False  # Min, Max and Iterations beside the average (-f); in JSON the samples
    validate: bool = False  # compare every result with what it should hold (-c)
    percentiles: tuple[float, ...] = ()  # to print (-z), of 0 to 100
    buffer: str = "numpy"  # "numpy", "torch", "torch-cuda" or "cupy"
    transport: str = "auto"  # as `Options.transport`
    group_size: int | None = None  # None: all ranks, or what the kind says
    quorum: int | str = "all"  # int, "all" or "majority"
    late: str = "stale"  # as `Options.late`
    grace: float | str = "auto"  # seconds or "auto"
    form: str = "in-place"  # "in-place", "private" or "out-of-place", of wagma's arrays
    arrival: str = "together"  # pattern by which ranks arrive, as it was written
    skews: tuple[float, ...] = ()  # amplitudes of the pattern, seconds; of the kind "skew"
    baselines: tuple[str, ...] = ()  # "mpi", "mpi-nonblocking", "gloo", "nccl", "copy"
    # seconds between posting and waiting, of the kinds "iallreduce" and "overlap"; None: as long as
    # the reduction itself
    compute: float | None = None
    tests: int = 0  # calls of MPI_Test, and of Request.test, while computing
    lateness: float = 0.0  # seconds that one rank posts late, of the kind "overlap"
    loop: str = "auto"  # "auto", "c" or "python"
    c_loop_bytes: int = 8192  # up to here "auto" is "c"
    samples: str | None = None  # file for the raw samples, or None
    seed: int = 1  # of orders and arrivals
    # library whose second result is falsified, to see that -c notices; or None
    corrupt: str | None = None
    timeout: float | None = None  # as `Options.timeout`


def in_groups(settings: Settings) -> bool:
    """Return whether sums may be of groups of the ranks."""
    return settings.kind == "group-allreduce" or settings.group_size is not None


def members(settings: Settings, ranks: int) -> int:
    """Return how many of `ranks` ranks reduce together: `group_size`, or what the kind says."""
    if settings.group_size is not None:
        return min(settings.group_size, ranks)
    if settings.kind != "group-allreduce":
        return ranks
    return min(ranks, 1 << -(-(ranks - 1).bit_length() // 2))  # about the square root


def transport(asked: str, *, one_node: bool) -> str:
    """Return by which wagma's ranks reach each other, "shm" or "mpi": as asked, or "auto"'s."""
    return ("shm" if one_node else "mpi") if asked == "auto" else asked


def wait_avoiding(settings: Settings, ranks: int) -> bool:
    """Return whether wagma's calls return without some of the members."""
    return settings.quorum not in ("all", members(settings, ranks))
