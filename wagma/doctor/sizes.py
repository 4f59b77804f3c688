"""Sizes in bytes: as text, and how many a handle needs."""

from __future__ import annotations

import re

from wagma.doctor.facts import Wanted
from wagma.memory import shared_memory_of

__all__ = ["needed_bytes", "parse_size", "size_text"]

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
MIB = 1 << 20
# docs/performance.md derives these figures; the window is that of a handle without sync versions.
WINDOW = 64
CHUNK_BYTES = 2 * MIB
SHOWN_BYTES = MIB  # arrays from here on show one buffer after the other


def parse_size(text: str) -> int:
    """'100MiB', '64k', '1.5 GB': in powers of 1024 whatever the unit is called.

    Raises:
        ValueError: it is no size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None:
        raise ValueError(f"{text!r} is no size: use a number of bytes, or 64KiB, 100MiB, 2GiB")
    number, unit = found.groups()
    return int(float(number) * 1024 ** " kmgt".index(unit or " "))


def size_text(size: float) -> str:
    """'100 MiB', '1.5 GiB'."""
    power = 0
    while size >= 1024 and power < len(UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.4g} {UNITS[power]}" if size < 1000 else f"{size:.0f} {UNITS[power]}"


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
