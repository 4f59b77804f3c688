"""Options of `NeighborExchange`: its graph, and the options that all collectives share."""

# ruff: noqa: RUF009 - option() makes a field
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, SupportsIndex, TypeAlias

from . import arrays
from . import option_values as values
from ._engine import GRAPHS, MAX_NEIGHBORS
from .options import CommonOptions, SharedArguments, option

Graph: TypeAlias = Literal["ring", "exponential"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NeighborOptions(CommonOptions):
    """Options of a `NeighborExchange`; equal on all ranks except `progress` and `progress_cpu`.

    Attributes:
        graph: edges of each version. "ring": every rank sends to the previous and to the next rank.
            "exponential": every rank sends to the ranks at distances 1, 2, 4, 8 ... in turn,
            `neighbors` of them in each version; the graph is directed.
        neighbors: with graph="exponential", 1 to P - 1 for P ranks (1 for one rank), at most 12;
            beyond ceil(log2 P) no power of two is left, and the smallest other distances follow.
            With graph="ring" 1: a neighbour on each side.
        average: whether x becomes the weighted mean of the received shares, or their undivided sum
            (see `NeighborExchange.exchange`).
        transport, memory, timeout, stall_warning, name, shm_limit, progress, progress_cpu: as in
            `Options`; memory="direct" is refused.
    """

    graph: Graph = option("ring", values.choice(GRAPHS))
    neighbors: SupportsIndex = option(1, values.integer)

    def engine(
        self, size: int, count: int, dtype: int, *, quorum: str = "quorum"
    ) -> dict[str, int | float]:
        """Convert the options for the engine; see `CommonOptions.engine`."""
        element = arrays.dtype_of_code(dtype)
        if element.storage.kind == "i":
            raise TypeError(
                f"dtype {element.name}: neighbours get fractions of an array, use a floating dtype"
            )
        options = CommonOptions.engine(self, size, count, dtype, quorum=quorum)
        neighbors = int(options["neighbors"])
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


class NeighborArguments(SharedArguments, total=False):
    """Keyword arguments of `NeighborExchange`: the fields of `NeighborOptions`."""

    graph: Graph
    neighbors: SupportsIndex
