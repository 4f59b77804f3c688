"""Averages with neighbours in a graph: a rank waits for the ranks that send to it. Pure."""

import numpy as np

from wagma.collectives._engine import neighbors_of
from wagma.simulate.methods import Method
from wagma.simulate.network import Network
from wagma.simulate.quadratic import Models
from wagma.simulate.tally import Tally
from wagma.theory.checks import Floats, Ints


def senders_of(method: Method, ranks: int, version: int) -> Ints:
    """Return the ranks that send to each rank: (P, n).

    All graphs are circulant: the senders of rank r are those of rank 0, shifted by r.
    """
    found = neighbors_of(0, ranks, method.graph, method.neighbors, version)
    shifts = np.array(found, np.int64).reshape(1, -1)
    return (np.arange(ranks)[:, np.newaxis] + shifts) % ranks


def play(
    method: Method, compute: Floats, network: Network, size: float, models: Models | None
) -> Tally:
    """Simulate.

    Args:
        method: of the kind "graph".
        compute: seconds, (versions, P).
        network: of the ranks.
        size: bytes of an array.
        models: those of a quadratic objective, or None.
    """
    versions, ranks = compute.shape
    tally = Tally(ranks)
    returned = np.zeros(ranks)
    for version in range(versions):
        calls = returned + compute[version]
        senders = senders_of(method, ranks, version)
        last = np.maximum(calls, calls[senders].max(axis=1, initial=0.0))
        tally.waited += last - calls
        returned = last + network.exchange(size, senders.shape[1])
        tally.averaged += (senders.shape[1] + 1) * ranks
        if models:
            models.step(version)
            models.mix(senders)
            models.measure()
    tally.averages = versions * ranks
    tally.calls = versions * ranks
    tally.seconds = float(returned.max())
    tally.gradients = tally.computed = float(versions * ranks)
    if models:
        tally.consensus = models.distance
    return tally
