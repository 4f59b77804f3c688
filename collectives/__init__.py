"""Wait-avoiding collectives: reductions that do not wait for stragglers.

`PartialAllreduce` is the collective; `GroupAllreduce`, `SoloAllreduce`, `MajorityAllreduce`,
`QuorumAllreduce` and `SyncAllreduce` are those of the papers, with its choices made. All are made
over an mpi4py communicator or, without MPI, by the ranks that a launcher such as torchrun started.
"""

from . import topology
from ._engine import Channel, DeviceArray, Handle, Outcome, Request, Segment
from .errors import (
    DeviceError,
    HandleError,
    MismatchError,
    PeerError,
    QuorumMismatchError,
    SegmentError,
    StallError,
    TransportError,
    WagmaError,
)
from .graph_options import NeighborOptions
from .methods import (
    GroupAllreduce,
    MajorityAllreduce,
    QuorumAllreduce,
    SoloAllreduce,
    SyncAllreduce,
)
from .neighbor_exchange import NeighborExchange
from .options import Options
from .partial_allreduce import PartialAllreduce
from .stats import RankStats, Stats

__all__ = [
    "Channel",
    "DeviceArray",
    "DeviceError",
    "GroupAllreduce",
    "Handle",
    "HandleError",
    "MajorityAllreduce",
    "MismatchError",
    "NeighborExchange",
    "NeighborOptions",
    "Options",
    "Outcome",
    "PartialAllreduce",
    "PeerError",
    "QuorumAllreduce",
    "QuorumMismatchError",
    "RankStats",
    "Request",
    "Segment",
    "SegmentError",
    "SoloAllreduce",
    "StallError",
    "Stats",
    "SyncAllreduce",
    "TransportError",
    "WagmaError",
    "topology",
]
