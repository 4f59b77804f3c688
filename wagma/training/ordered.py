"""Sums whose rounding is the same on every machine."""

import torch

LANES = 1 << 16


def ordered_dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the inner product of two vectors, the same bits on every machine.

    It is summed in float64 in a fixed order. The order of torch.dot and numpy.dot depends on the
    number of threads and on the width of SIMD registers, so that ranks could decide differently.

    Args:
        a: 1-d tensor of any floating dtype.
        b: 1-d tensor of the same length, on the same device.
    """
    lanes = torch.zeros(LANES, dtype=torch.float64, device=a.device)
    for start in range(0, a.numel(), LANES):
        products = a[start : start + LANES].double() * b[start : start + LANES].double()
        lanes[: products.numel()] += products
    while lanes.numel() > 1:
        half = lanes.numel() // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes.item()
