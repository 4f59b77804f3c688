"""The time at which a GPU has got as far as the program."""

import time
from collections.abc import Sequence

import torch


def device_of(parameters: Sequence[torch.Tensor]) -> torch.device | None:
    """Return the device of the parameters; None: there are none."""
    return parameters[0].device if parameters else None


def now(device: torch.device | None) -> float:
    """Return `time.perf_counter` once the work that was queued for `device` is done.

    Args:
        device: the device that computes; None, or another than a GPU: nothing is queued. Of a GPU
            only work on the caller's current stream counts.
    """
    if device is not None and device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return time.perf_counter()
