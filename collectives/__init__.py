"""Wait-avoiding collectives: reductions that do not wait for stragglers.

`PartialAllreduce` is the collective, `GroupAllreduce` its wait-avoiding form; both are made over an
mpi4py communicator. Importing this package needs no MPI.
"""

from . import topology
from ._engine import Handle, Outcome, Segment
from .errors import HandleError, MismatchError, PeerError, SegmentError, StallError, WagmaError
from .options import Options
from .partial_allreduce import GroupAllreduce, PartialAllreduce
from .stats import Stats

__all__ = [
    "GroupAllreduce",
    "Handle",
    "HandleError",
    "MismatchError",
    "Options",
    "Outcome",
    "PartialAllreduce",
    "PeerError",
    "Segment",
    "SegmentError",
    "StallError",
    "Stats",
    "WagmaError",
    "topology",
]
