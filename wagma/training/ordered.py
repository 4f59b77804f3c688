"""Sums whose rounding depends on nothing but the numbers."""

from __future__ import annotations

import torch

__all__ = ["ordered_dot"]

LANES = 1 << 16


def ordered_dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the inner product of two vectors, the same bits on every machine.

    Computed in float64, in an order that does not depend on the number of threads or on the width
    of SIMD registers, as torch.dot and numpy.dot do: ranks that decide by it decide alike.

    Args:
        a: 1-d tensor of any floating dtype.
        b: another one, of the same length.
    """
    lanes = torch.zeros(LANES, dtype=torch.float64)
    for start in range(0, a.numel(), LANES):
        products = a[start : start + LANES].double() * b[start : start + LANES].double()
        lanes[: products.numel()] += products
    while lanes.numel() > 1:
        half = lanes.numel() // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes.item()
