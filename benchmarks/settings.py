"""What a benchmark was asked to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "LARGE_BYTES",
    "Settings",
    "in_groups",
    "members",
    "transport",
    "wait_avoiding",
]

LARGE_BYTES = 8192  # OSU's: above, there are fewer iterations


@dataclass(frozen=True)
class Settings:
    """The command line, checked and with defaults filled in; times in seconds, sizes in bytes.

    Attributes:
        kind: one of `kinds.KINDS`.
        sizes: of the arrays, ascending, each a multiple of the datatype's size.
        datatype: of wagma: "float32", "float64", "float16", "bfloat16", "int32" or "int64".
        iterations: counted ones of each series at each size.
        iterations_large: the same above LARGE_BYTES.
        warmup: uncounted ones before them.
        warmup_large: the same above LARGE_BYTES.
        passes: parts into which the iterations of a series are divided; the series alternate.
        format: "osu", "nccl", "json" or "csv".
        full: Min, Max and Iterations beside the average (-f); in JSON the samples.
        validate: compare every result with what it should hold (-c).
        percentiles: to print (-z), of 0 to 100.
        buffer: "numpy", "torch" or "cupy".
        transport: as `Options.transport`.
        group_size: None: all ranks, or what the kind says.
        quorum: int, "all" or "majority".
        late: as `Options.late`.
        grace: seconds or "auto".
        form: "in-place", "private" or "out-of-place", of wagma's arrays.
        arrival: pattern by which ranks arrive, as it was written.
        skews: amplitudes of the pattern, seconds; of the kind "skew".
        baselines: "mpi", "mpi-nonblocking", "gloo", "nccl".
        compute: seconds between posting and waiting, of the kinds "iallreduce" and "overlap";
            None: as long as the reduction itself.
        tests: calls of MPI_Test, and of Request.test, while computing.
        lateness: seconds that one rank posts late, of the kind "overlap".
        loop: "auto", "c" or "python".
        c_loop_bytes: up to here "auto" is "c".
        samples: file for the raw samples, or None.
        seed: of orders and arrivals.
        corrupt: library whose second result is falsified, to see that -c notices; or None.
        timeout: as `Options.timeout`.
    """

    kind: str
    sizes: tuple[int, ...]
    datatype: str = "float32"
    iterations: int = 1000
    iterations_large: int = 100
    warmup: int = 200
    warmup_large: int = 10
    passes: int = 5
    format: str = "osu"
    full: bool = False
    validate: bool = False
    percentiles: tuple[float, ...] = ()
    buffer: str = "numpy"
    transport: str = "auto"
    group_size: int | None = None
    quorum: int | str = "all"
    late: str = "stale"
    grace: float | str = "auto"
    form: str = "in-place"
    arrival: str = "together"
    skews: tuple[float, ...] = ()
    baselines: tuple[str, ...] = ()
    compute: float | None = None
    tests: int = 0
    lateness: float = 0.0
    loop: str = "auto"
    c_loop_bytes: int = 8192
    samples: str | None = None
    seed: int = 1
    corrupt: str | None = None
    timeout: float | None = None


def in_groups(settings: Settings) -> bool:
    """Whether sums may be of groups of the ranks."""
    return settings.kind == "group-allreduce" or settings.group_size is not None


def members(settings: Settings, ranks: int) -> int:
    """How many of `ranks` ranks reduce together: `group_size`, or what the kind says."""
    if settings.group_size is not None:
        return min(settings.group_size, ranks)
    if settings.kind != "group-allreduce":
        return ranks
    return min(ranks, 1 << -(-(ranks - 1).bit_length() // 2))  # about the square root


def transport(asked: str, *, one_node: bool) -> str:
    """Return by which wagma's ranks reach each other, "shm" or "mpi": as asked, or "auto"'s."""
    return ("shm" if one_node else "mpi") if asked == "auto" else asked


def wait_avoiding(settings: Settings, ranks: int) -> bool:
    """Whether wagma's calls return without some of the members."""
    return settings.quorum not in ("all", members(settings, ranks))
