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
    """One line of the report."""

    topic: str  # what it is about, one word; the same in every run
    level: Level  # how bad it is
    text: str  # what was found
    remedy: str = ""  # what to do about it; empty where there is nothing to do
    hosts: tuple[str, ...] = ()  # where it was found, if it is about nodes


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
    """The handle that is to be made."""

    array_bytes: int  # of the array
    quorum: str  # a number of ranks, "all" or "majority"
    given: bool  # whether the user asked for this size; it is an example otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """What mpi4py loaded."""

    error: str = ""  # why mpi4py cannot start MPI; the other fields mean nothing then
    family: str = ""  # "MPICH", "Open MPI" and so on
    version: str = ""  # of the library
    paths: Sequence[str] = ()  # files of MPI libraries in this process
    standard: tuple[int, int] = (0, 0)  # version of the standard
    # launcher of another MPI that started this process; MPI was not initialised then, and the
    # following fields mean nothing
    foreign: str = ""
    thread_level: str = ""  # "MULTIPLE" and so on
    rank: int = 0  # of COMM_WORLD
    size: int = 1  # of COMM_WORLD
    refused: str = ""  # why no collective can be made over COMM_WORLD, in the words of its error
    srun: bool = False  # whether srun started this process
    # whether the library takes pointers to GPU memory; None: it does not say
    cuda: bool | None = None
    # the launchers that are found, the one that belongs to this Python first
    mpiexec: Sequence[str] = ()
    messages_error: str = ""  # why there cannot be transport="mpi"; empty: there can


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The extension with the engine."""

    error: str = ""  # why it cannot be imported; the other fields mean nothing then
    abi: int = 0  # version of the C interface
    simd: str = ""  # level of the kernels
    huge_pages: bool = False  # whether it gets huge pages of shared memory, whatever their settings
    # environment variables that set an option, and which
    options: Mapping[str, str] = field(default_factory=dict)
    own: Sequence[str] = ()  # those of them in which ranks may differ
    # the others that have a meaning, and which
    variables: Mapping[str, str] = field(default_factory=dict)
    options_error: str = ""  # what is wrong with the options that the environment sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpus:
    """Processors, as this process sees them."""

    affinity: Sequence[int]  # numbers of those it may run on
    online: int  # how many the machine has
    # the physical core, by the lowest number on it, of each that it may run on
    core_of: Mapping[int, int] = field(default_factory=dict)
    limit: float | None = None  # of the cgroup, in CPUs; None: there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Shared memory, and how pages and other processes' memory are handled."""

    shm_error: str = ""  # why /dev/shm cannot be used; empty: a file was made in it
    shm_device: int = 0  # number of its file system: ranks with different ones share nothing
    shm_bytes: int = 0  # its size; 0: no limit of its own
    shm_free: int = 0  # what is left of that
    # option "huge" of its tmpfs, "never", "always", "within_size" or "advise"; empty: unknown
    shm_huge: str = ""
    available: int = 0  # MemAvailable of the system, in bytes; 0: unknown
    # inode of the control group that has the least memory left; 0: no group has a limit
    group: int = 0
    group_limit: int = 0  # its limit, in bytes
    group_left: int = 0  # what is left of that, in bytes
    thp: str = ""  # of transparent huge pages, "always", "madvise", "never"; empty: unknown
    thp_shmem: str = ""  # shmem_enabled, of which "deny" and "force" override the option of a tmpfs
    ptrace_scope: int | None = None  # of the Yama security module; None: it is not there
    # whether this rank could read from the next rank's memory; None: nobody to try it with
    cma: bool | None = None
    cma_error: str = ""  # why not


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """GPUs and what there is to use them."""

    driver: str = ""  # version of the kernel's driver; empty: none
    # how many the driver lets this process use; None: its library cannot be asked
    devices: int | None = None
    error: str = ""  # why not
    torch: str = ""  # version of PyTorch; empty: not installed
    # whether PyTorch can use one; None: not asked, because there is no driver
    torch_cuda: bool | None = None
    cupy: str = ""  # version of CuPy
    device: str = ""  # name of the first GPU as wagma opens it; empty: not opened
    device_error: str = ""  # why not; empty: not tried
    uuid: str = ""  # of that GPU or instance of MIG, in hexadecimal digits; empty: not opened
    # whether processes that share that GPU compute on it at the same time (MPS); None: not known
    mps: bool | None = None
    # of the GPUs that this process sees, the first two that do not reach each other's memory
    apart: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """CLOCK_MONOTONIC."""

    namespace: str = ""  # of time, that this process is in; empty: the kernel has none
    behind: float = 0.0  # seconds by which it read less than a rank of its node had read before it


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What is known of one process."""

    rank: int = 0  # number in the job
    node: int = 0  # lowest rank of those that MPI says it shares memory with
    host: str = ""  # its name
    machine: str = ""  # of the kernel's boot: equal in containers on one machine; empty: unknown
    # of Python and packages, by name; "none" where one is not installed
    versions: Mapping[str, str] = field(default_factory=dict)
    # of the variables that matter, those that are set
    environment: Mapping[str, str] = field(default_factory=dict)
    # probes that raised an exception, and which; their facts are the defaults
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
    """

    calls: int = 0  # how many gave the right sum
    ranks: int = 0  # how many took part
    error: str = ""  # what went wrong; empty: nothing
    skipped: str = ""  # why it was not tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a job."""

    ranks: Sequence[RankFacts]  # by rank
    live: Sequence[Live]  # by rank
    wanted: Wanted  # the handle that is to be made
    # what the ranks met through: "MPI", "torchrun" (the environment that it sets), or empty for one
    # process alone
    launcher: str
    lost: str = ""  # why this process is alone, although the environment names others


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
