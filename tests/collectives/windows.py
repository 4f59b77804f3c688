"""How far ranks get without one that does not call."""

from wagma.collectives import PartialAllreduce


def ahead(coll: PartialAllreduce, window: int) -> int:
    """Versions that the others can call: over messages an even number, for two barriers."""
    return window if coll.transport == "shm" else 2 * max(1, window // 2)
