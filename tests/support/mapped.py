"""Memory that the ranks share, as this process sees it."""

from pathlib import Path


def segments() -> int:
    """Places in this process where such memory is mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("/dev/shm/wagma-" in line or "/dev/shm/#" in line for line in lines)
