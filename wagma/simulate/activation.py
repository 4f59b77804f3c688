"""How members hear that a version begins: over the graph of csrc/protocol/activation.h. Pure."""

from functools import cache

import numpy as np

from wagma.theory.checks import Ints


def hops(starters: Ints, counts: Ints, most: int) -> Ints:
    """Return how many messages after its start each member hears of a version.

    Args:
        starters: the member that starts it in each group, by its place: (groups,).
        counts: members of each group, (groups,).
        most: members of the largest group.

    Returns:
        (groups, most). Places that a group does not have hold any number.
    """
    places, first, n = np.arange(most), starters[:, np.newaxis], counts[:, np.newaxis]
    # Member i sends to i ^ 2^d where n is a power of two, otherwise to (i + 2^d) mod n; who hears
    # it over d goes on with the larger ones.
    away = np.where(n & (n - 1), (places - first) % n, places ^ first)
    found: Ints = _ones(2 * most)[away]
    return found


@cache
def _ones(count: int) -> Ints:
    return np.array([number.bit_count() for number in range(count)])
