"""Numbers of networks from measured times: least squares without negative numbers. Pure."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from wagma.simulate.network import Network
from wagma.theory.checks import Floats


def fitted(nominal: Network, ranks: int, calls: Mapping[int, tuple[int, float]]) -> Network:
    """Return the nominal network, scaled so that averages of all ranks take as long as measured.

    Latencies and seconds per byte are scaled, each by a factor, by least squares. One measured size
    cannot tell these two apart: both are scaled by one factor.

    Args:
        nominal: the pattern, in which an average takes time.
        ranks: that averaged, 2 or more.
        calls: number of averages by their bytes, and the seconds of these, without waiting.
    """
    sizes = [size for size, (count, _) in calls.items() if count]
    count, seconds = np.array([calls[size] for size in sizes], np.float64).reshape(-1, 2).T
    each = seconds / count
    took = np.array([nominal.allreduce(size, ranks) for size in sizes])
    if len(sizes) < 2:
        factor = float(np.sum(each) / np.sum(took)) if sizes else 1.0
        return _scaled(nominal, factor, factor)
    start = nominal.allreduce(0, ranks)
    # Each size weighs as much as its calls took, relative to its time.
    weights = np.sqrt(count) / np.maximum(each, 1e-9)
    table = np.column_stack([np.full(len(sizes), start), took - start]) * weights[:, np.newaxis]
    latency, slope = nonnegative(table, each * weights)
    return _scaled(nominal, latency, slope)


def nonnegative(rows: Floats, values: Floats) -> list[float]:
    """Return the factors >= 0 of the columns of `rows` whose sum is near to `values`.

    Fits by least squares; while a factor is negative, the most negative one becomes 0. Of two
    columns without negative elements, and values >= 0, the sum is the nearest one.
    """
    kept = list(range(rows.shape[1]))
    while True:
        scale = np.abs(rows[:, kept]).max(axis=0)
        scale[scale == 0] = 1.0
        found = np.linalg.lstsq(rows[:, kept] / scale, values, rcond=None)[0] / scale
        if (found >= 0).all():
            break
        del kept[int(np.argmin(found * scale))]
    numbers = [0.0] * rows.shape[1]
    for place, number in zip(kept, found.tolist(), strict=True):
        numbers[place] = number
    return numbers


def _scaled(network: Network, latency: float, slope: float) -> Network:
    intra = network.intra
    return replace(
        network,
        latency=network.latency * latency,
        overhead=network.overhead * latency,
        gap=network.gap * latency,
        gap_per_byte=network.gap_per_byte * slope,
        reduce_per_byte=network.reduce_per_byte * slope,
        intra=None if intra is None else _scaled(intra, latency, slope),
    )
