"""What ranks measure together at one point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .contributions import Contributions, Vector
from .datatypes import DATATYPES
from .gpus import Inputs
from .samples import Point, Series, Times
from .settings import LARGE_BYTES, Settings

if TYPE_CHECKING:
    from mpi4py import MPI

    from .gpus import Gpu
    from .start import Start


def contributions_of(settings: Settings, size: int, ranks: int) -> Contributions:
    """Return what the arrays of `size` bytes are filled with.

    Raises:
        ValueError: results of this datatype cannot be checked.
    """
    # A late rank adds its own once more; what carries may carry everything that was ever called.
    terms = ranks + 1
    if settings.late == "carry":
        terms = ranks * sum(sum(part) for part in iterations_of(settings, size))
    count = size // DATATYPES[settings.datatype].bytes
    return Contributions(count, settings.datatype, terms if settings.validate else 1)


def iterations_of(settings: Settings, size: int) -> tuple[list[int], list[int]]:
    """Return the counted iterations of each pass, and the uncounted ones before them.

    Fewer uncounted ones than passes are those of the first passes.
    """
    large = size > LARGE_BYTES
    iterations = settings.iterations_large if large else settings.iterations
    warmup = settings.warmup_large if large else settings.warmup
    passes = min(settings.passes, iterations)

    def parts(number: int) -> list[int]:
        return [number // passes + (i < number % passes) for i in range(passes)]

    return parts(iterations), parts(warmup)


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Measurement:
    """Arrays of one size, as all ranks of a communicator measure them."""

    settings: Settings  # what was asked for
    comm: MPI.Intracomm  # all ranks
    start: Start  # of them
    size: int  # bytes of each array
    arrival: str  # the pattern, as text
    # ns after the common start, [iterations, ranks]; begun again after their end. Each subject's
    # n-th counted iteration has the n-th
    offsets: Times
    amplitude: float | None = None  # of the pattern, if it has one
    # collective, the same on all ranks: whether to stop. What is complete of the passes is kept
    interrupted: Callable[[], bool] = _never
    gpu: Gpu | None = None  # that the arrays are on; None: they are the host's

    @property
    def rank(self) -> int:
        """Return this rank."""
        return self.comm.Get_rank()

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.comm.Get_size()

    @cached_property
    def contributions(self) -> Contributions:
        """Return what is written before each call; ValueError if results cannot be checked."""
        return contributions_of(self.settings, self.size, self.ranks)

    @cached_property
    def inputs(self) -> Inputs | None:
        """Return what writes the contributions on the GPU; None: there is none."""
        return None if self.gpu is None else Inputs(self.gpu, self.contributions)

    @property
    def passes(self) -> tuple[list[int], list[int]]:
        """Return the iterations of each pass, see `iterations_of`."""
        return iterations_of(self.settings, self.size)

    def array(self) -> Vector:
        """Return a new array, which is not initialised."""
        return np.empty(self.contributions.count, self.contributions.storage)

    def first(self) -> Vector:
        """Return this rank's contribution of version -1, with which wagma's handles are made."""
        first = self.array()
        self.contributions.write(first, self.rank, -1)
        return first

    def offsets_of(self, iterations: Sequence[int]) -> Times:
        """Return the offsets of some iterations, [iterations, ranks]."""
        found: Times = self.offsets[np.array(iterations) % len(self.offsets)]
        return found

    def point(self, series: Sequence[Series | None], complete: int) -> Point | None:
        """Return what was measured, on rank 0; None elsewhere, and where no pass was completed."""
        if self.rank != 0 or complete == 0:
            return None
        found = tuple(one for one in series if one is not None)
        return Point(self.size, self.contributions.count, self.arrival, self.amplitude, found)
