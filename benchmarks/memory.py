"""Whether arrays fit into memory, which is found out before anything is made."""

from wagma.memory import Room, shared_memory_of

from .gpus import GPUS
from .kinds import KINDS
from .settings import Settings, members, wait_avoiding

WINDOW = 8  # versions that a rank may be ahead, with late="skip" and "carry"
MPI_BUFFERS = 3  # of both forms of a call: one in place, two buffers


def arrays(settings: Settings, ranks: int, over: str = "shm") -> tuple[int, int]:
    """Return how many arrays per rank the subjects need: in shared memory, and in all.

    Args:
        settings: what is measured.
        ranks: of all nodes.
        over: "shm", or "mpi": then wagma's arrays are private, and partial sums come on top.

    The numbers are those of copies on the host where arrays are on GPUs.
    """
    if settings.buffer in GPUS:
        return 0, 1 + settings.validate + ("mpi" in settings.baselines)
    ways, handles = KINDS[settings.kind].ways, 1
    if wait_avoiding(settings, ranks):
        # The array, three contributions and two results; results are kept for those who are late.
        shared = 6 if settings.late == "stale" else 6 + WINDOW
        handles = ways
    else:
        shared = 2 if ways > 1 else 1  # posting needs a second one
    if over == "mpi":
        shared += 1
    shared *= handles
    private = 1 + handles * (settings.form == "private")
    if settings.loop == "c":
        private += 1 + settings.validate  # inputs and results are kept
    if "mpi" in settings.baselines:
        private += MPI_BUFFERS * (1 + (members(settings, ranks) < ranks))
    private += MPI_BUFFERS * ("mpi-nonblocking" in settings.baselines)
    private += ("gloo" in settings.baselines) + ("nccl" in settings.baselines)
    return 0 if over == "mpi" else shared, shared + private


def shortage(
    settings: Settings, ranks: int, size: int, free: Room, *, over: str = "shm", here: int = 0
) -> str | None:
    """Return why arrays of `size` bytes on `ranks` ranks cannot be measured; None: they fit.

    Args:
        settings: what is measured.
        ranks: of all nodes.
        size: of each array, in bytes.
        free: on a node.
        over: see `arrays`.
        here: ranks on that node; 0: all.
    """
    here = here or ranks
    in_segment, all_arrays = arrays(settings, ranks, over)
    shared = in_segment * shared_memory_of(size) * here
    total = shared + (all_arrays - in_segment) * size * here
    for needed, there, where in ((shared, free.shared, "/dev/shm"), (total, free.total, "memory")):
        if needed > there:
            return (
                f"{size} bytes are left out: {here} ranks need {_mib(needed)} of {where}, and "
                f"{_mib(there)} are free"
            )
    return None


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
