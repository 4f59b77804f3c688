"""How many bytes a handle needs."""

from __future__ import annotations

from wagma.doctor.facts import Wanted
from wagma.memory import shared_memory_of

__all__ = ["needed_bytes"]

MIB = 1 << 20
# docs/measuring-rows.md has these figures; the window is that of a handle without sync versions.
WINDOW = 64
CHUNK_BYTES = 2 * MIB
SHOWN_BYTES = MIB  # arrays from here on show one buffer after the other


def needed_bytes(wanted: Wanted, ranks: int) -> tuple[int, int]:
    """Shared memory of one rank, at creation and at most; without some kilobytes of words.

    At most with the default options: late="skip", activation="world" and groups of two can need
    more.

    Args:
        wanted: the handle.
        ranks: of the handle.
    """
    array = shared_memory_of(wanted.array_bytes)
    if wanted.quorum == "all" or wanted.quorum == str(ranks):
        return array, 2 * array + shared_memory_of(min(CHUNK_BYTES, wanted.array_bytes))
    shows = wanted.array_bytes >= SHOWN_BYTES
    # By each rank that is late: two where groups are pairs, and where arrays show buffers by turns.
    pinned = 2 if ranks == 2 or shows else 1
    versions = 3 * WINDOW if shows else 2 * WINDOW - 1
    most = 1 + min(pinned * (ranks - 1), versions) + 3 + 2 * ranks
    return 6 * array, max(6, most) * array
