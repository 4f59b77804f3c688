"""Options of `NeighborExchange`: the graph, and what it has in common with other collectives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, SupportsFloat, SupportsIndex, TypeAlias

from . import arrays
from ._engine import GRAPHS, MAX_NEIGHBORS
from .options import Options, Transport, choice, integer

__all__ = ["Graph", "NeighborOptions"]

Graph: TypeAlias = Literal["ring", "exponential"]

_COMMON = (
    "average",
    "transport",
    "timeout",
    "stall_warning",
    "name",
    "shm_limit",
    "progress",
    "progress_cpu",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NeighborOptions:
    """What the ranks of a `NeighborExchange` have to agree on, beside the array's shape and dtype.

    In `progress` and `progress_cpu` they may differ.

    Attributes:
        graph: who sends to whom. "ring": every rank to the one before and the one after it.
            "exponential": to the ranks 1, 2, 4, 8 ... after it in turn, `neighbors` of them in each
            version; they send to others.
        neighbors: with graph="exponential", 1 to P - 1 of P ranks (1 of one rank), at most 12;
            those beyond ceil(log2 P), for whom there is no power of two, are the next ranks. 1
            with graph="ring", which has one on each side.
        average: whether x becomes the weighted mean of what a rank gets, or the undivided sum of
            shares (see `NeighborExchange.exchange`).
        transport, timeout, stall_warning, name, shm_limit, progress, progress_cpu: as in `Options`.
    """

    graph: Graph = "ring"
    neighbors: SupportsIndex = 1
    average: bool = True
    transport: Transport = "auto"
    timeout: SupportsFloat | None = None
    stall_warning: SupportsFloat | None = 60.0
    name: str | None = None
    shm_limit: SupportsIndex | None = None
    progress: str = "sleep:1000"
    progress_cpu: SupportsIndex | None = None

    def with_environment(self, environ: Mapping[str, str] = os.environ) -> NeighborOptions:
        """These options with those that the environment sets instead.

        Raises:
            ValueError: a variable does not hold what its option takes.
        """
        common = self._common().with_environment(environ)
        return replace(self, **{name: getattr(common, name) for name in _COMMON})

    def engine(self, size: int, count: int, dtype: int) -> dict[str, int | float]:
        """The engine's wagma_options for `size` ranks and arrays of `count` elements.

        Args:
            size: number of ranks.
            count: of the array's elements.
            dtype: their code.

        Raises:
            TypeError, ValueError: an option has a value of the wrong type, one that it does not
                know, or one that the number of ranks does not allow. What is left is for the
                engine.
        """
        element = arrays.dtype_of_code(dtype)
        if element.storage.kind == "i":
            raise TypeError(
                f"dtype {element.name}: neighbours get fractions of an array, use a floating dtype"
            )
        options = self._common().engine(size, count, dtype)
        options["graph"] = choice("graph", self.graph, GRAPHS)
        options["neighbors"] = neighbors = integer("neighbors", self.neighbors)
        if self.graph == "ring":
            if neighbors != 1:
                raise ValueError(
                    f"neighbors={neighbors} and graph='ring', which has one on each side: pass 1, "
                    "or graph='exponential'"
                )
            return options
        most = min(max(1, size - 1), MAX_NEIGHBORS)
        if not 1 <= neighbors <= most:
            raise ValueError(
                f"neighbors={neighbors} must be 1 to {most} of {size} ranks"
                if size > 1
                else f"neighbors={neighbors} must be 1 where there is one rank"
            )
        return options

    def _common(self) -> Options:
        return Options(**{name: getattr(self, name) for name in _COMMON})
