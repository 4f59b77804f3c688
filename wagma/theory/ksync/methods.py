"""Names of the four methods, and their arguments. Pure."""

from __future__ import annotations

from typing import Literal, SupportsIndex, get_args

from wagma.inject.checks import check_count

Method = Literal["k-sync", "k-batch-sync", "k-async", "k-batch-async"]
METHODS: tuple[str, ...] = get_args(Method)

# Without a server, a rank that computes 8 times as long as the mean delays no other rank.
_PATIENCE = 8


def default_window(ranks: int, k: int) -> int:
    """Return the updates that ranks keep for a slow one where there is no server, see `KSync`."""
    return -(-_PATIENCE * ranks // k)


def check_method(method: str) -> str:
    """Return the name of a method; raise ValueError, with the names that there are."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}: one of {', '.join(METHODS)} is needed")
    return method


def check_learners(learners: SupportsIndex, k: SupportsIndex) -> tuple[int, int]:
    """Return P and K as ints; raise ValueError unless 1 <= K <= P."""
    count = check_count("learners", learners, 1)
    return count, check_count("k", k, 1, count)
