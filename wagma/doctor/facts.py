"""Plain records of what the probes found out, and of what the checks make of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from wagma.units import rank_list

T = TypeVar("T")


class Level(Enum):
    """How bad a finding is; only problems make the exit status 1."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        topic: what it is about, one word; the same in every run.
        level: how bad it is.
        text: what was found.
        remedy: what to do about it; empty where there is nothing to do.
        hosts: where it was found, if it is about nodes.
    """

    topic: str
    level: Level
    text: str
    remedy: str = ""
    hosts: tuple[str, ...] = ()


def ok(topic: str, text: str, remedy: str = "", hosts: tuple[str, ...] = ()) -> Finding:
    """Return a finding that says what is right."""
    return Finding(topic, Level.OK, text, remedy, hosts)


def note(topic: str, text: str, remedy: str = "", hosts: tuple[str, ...] = ()) -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(topic, Level.NOTE, text, remedy, hosts)


def warning(topic: str, text: str, remedy: str = "", hosts: tuple[str, ...] = ()) -> Finding:
    """Return a finding of what is slow, or may fail."""
    return Finding(topic, Level.WARNING, text, remedy, hosts)


def problem(topic: str, text: str, remedy: str = "", hosts: tuple[str, ...] = ()) -> Finding:
    """Return a finding of what does not work."""
    return Finding(topic, Level.PROBLEM, text, remedy, hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The handle that is to be made.

    Attributes:
        array_bytes: of the array.
        quorum: a number of ranks, "all" or "majority".
        given: whether the user asked for this size; it is an example otherwise.
    """

    array_bytes: int
    quorum: str
    given: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """What mpi4py loaded.

    Attributes:
        error: why mpi4py cannot start MPI; the other fields mean nothing then.
        family: "MPICH", "Open MPI" and so on.
        version: of the library.
        paths: files of MPI libraries in this process.
        standard: version of the standard.
        foreign: launcher of another MPI that started this process; MPI was not initialised then,
            and the following fields mean nothing.
        thread_level: "MULTIPLE" and so on.
        rank: of COMM_WORLD.
        size: of COMM_WORLD.
        refused: why no collective can be made over COMM_WORLD, in the words of its error.
        srun: whether srun started this process.
        cuda: whether the library takes pointers to GPU memory; None: it does not say.
        mpiexec: the launchers that are found, the one that belongs to this Python first.
        messages_error: why there cannot be transport="mpi"; empty: there can.
    """

    error: str = ""
    family: str = ""
    version: str = ""
    paths: Sequence[str] = ()
    standard: tuple[int, int] = (0, 0)
    foreign: str = ""
    thread_level: str = ""
    rank: int = 0
    size: int = 1
    refused: str = ""
    srun: bool = False
    cuda: bool | None = None
    mpiexec: Sequence[str] = ()
    messages_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The extension with the engine.

    Attributes:
        error: why it cannot be imported; the other fields mean nothing then.
        abi: version of the C interface.
        simd: level of the kernels.
        huge_pages: whether it gets huge pages of shared memory, whatever their settings.
        options: environment variables that set an option, and which.
        own: those of them in which ranks may differ.
        variables: the others that have a meaning, and which.
        options_error: what is wrong with the options that the environment sets.
    """

    error: str = ""
    abi: int = 0
    simd: str = ""
    huge_pages: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    own: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    options_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpus:
    """Processors, as this process sees them.

    Attributes:
        affinity: numbers of those it may run on.
        online: how many the machine has.
        core_of: the physical core, by the lowest number on it, of each that it may run on.
        limit: of the cgroup, in CPUs; None: there is none.
    """

    affinity: Sequence[int]
    online: int
    core_of: Mapping[int, int] = field(default_factory=dict)
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Shared memory, and how pages and other processes' memory are handled.

    Attributes:
        shm_error: why /dev/shm cannot be used; empty: a file was made in it.
        shm_device: number of its file system: ranks with different ones share nothing.
        shm_bytes: its size; 0: no limit of its own.
        shm_free: what is left of that.
        shm_huge: option "huge" of its tmpfs, "never", "always", "within_size" or "advise"; empty:
            unknown.
        available: MemAvailable of the system, in bytes; 0: unknown.
        group: inode of the control group that has the least memory left; 0: no group has a limit.
        group_limit: its limit, in bytes.
        group_left: what is left of that, in bytes.
        thp: of transparent huge pages, "always", "madvise", "never"; empty: unknown.
        thp_shmem: shmem_enabled, of which "deny" and "force" override the option of a tmpfs.
        ptrace_scope: of the Yama security module; None: it is not there.
        cma: whether this rank could read from the next rank's memory; None: nobody to try it with.
        cma_error: why not.
    """

    shm_error: str = ""
    shm_device: int = 0
    shm_bytes: int = 0
    shm_free: int = 0
    shm_huge: str = ""
    available: int = 0
    group: int = 0
    group_limit: int = 0
    group_left: int = 0
    thp: str = ""
    thp_shmem: str = ""
    ptrace_scope: int | None = None
    cma: bool | None = None
    cma_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """GPUs and what there is to use them.

    Attributes:
        driver: version of the kernel's driver; empty: none.
        devices: how many the driver lets this process use; None: its library cannot be asked.
        error: why not.
        torch: version of PyTorch; empty: not installed.
        torch_cuda: whether PyTorch can use one; None: not asked, because there is no driver.
        cupy: version of CuPy.
    """

    driver: str = ""
    devices: int | None = None
    error: str = ""
    torch: str = ""
    torch_cuda: bool | None = None
    cupy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """CLOCK_MONOTONIC.

    Attributes:
        namespace: of time, that this process is in; empty: the kernel has none.
        behind: seconds by which it read less than a rank of its node had read before it.
    """

    namespace: str = ""
    behind: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What is known of one process.

    Attributes:
        rank: number in the job.
        node: lowest rank of those that MPI says it shares memory with.
        host: its name.
        machine: of the kernel's boot: equal in containers on one machine; empty: unknown.
        versions: of Python and packages, by name; "none" where one is not installed.
        environment: of the variables that matter, those that are set.
        failed: probes that raised an exception, and which; their facts are the defaults.
    """

    rank: int = 0
    node: int = 0
    host: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    mpi: Mpi = field(default_factory=Mpi)
    engine: Engine = field(default_factory=Engine)
    cpus: Cpus = field(default_factory=lambda: Cpus(affinity=(), online=0))
    memory: Memory = field(default_factory=Memory)
    gpu: Gpu = field(default_factory=Gpu)
    clock: Clock = field(default_factory=Clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """One rank's part of the trial: a handle over all ranks, called and closed.

    Where they are on several nodes and there is no transport between these, over those of its node.

    Attributes:
        calls: how many gave the right sum.
        ranks: how many took part.
        error: what went wrong; empty: nothing.
        skipped: why it was not tried.
    """

    calls: int = 0
    ranks: int = 0
    error: str = ""
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a job.

    Attributes:
        ranks: by rank.
        live: by rank.
        wanted: the handle that is to be made.
        launcher: what the ranks met through: "MPI", "torchrun" (the environment that it sets), or
            empty for one process alone.
        lost: why this process is alone, although the environment names others.
    """

    ranks: Sequence[RankFacts]
    live: Sequence[Live]
    wanted: Wanted
    launcher: str
    lost: str = ""


def restored(kind: type[T], told: Mapping[str, Any]) -> T:
    """Return the record that ``dataclasses.asdict`` made this of; it may be JSON since."""
    kinds = get_type_hints(kind)
    return kind(**{name: _restored(kinds[name], value) for name, value in told.items()})


def _restored(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        return restored(kind, value)
    if get_origin(kind) is tuple:
        return tuple(value)
    if isinstance(value, Mapping) and get_args(kind)[0] is int:
        return {int(key): one for key, one in value.items()}
    return value


def by_node(facts: Facts) -> dict[int, list[RankFacts]]:
    """Return the ranks that share a node, by the lowest of them; ascending."""
    nodes: dict[int, list[RankFacts]] = {}
    for rank in facts.ranks:
        nodes.setdefault(rank.node, []).append(rank)
    return dict(sorted(nodes.items()))


def over_messages(facts: Facts) -> bool:
    """Return whether collectives over all ranks use messages, not shared memory."""
    asked = {rank.environment.get("WAGMA_TRANSPORT", "auto") for rank in facts.ranks}
    if facts.launcher == "torchrun":  # without MPI there are none
        return False
    return "mpi" in asked or ("shm" not in asked and len(by_node(facts)) > 1)


def which_ranks(ranks: Sequence[RankFacts]) -> str:
    """Return 'rank 3', or 'ranks 0-2, 5'."""
    return rank_list([rank.rank for rank in ranks])
