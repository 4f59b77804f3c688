"""Training algorithms: what is averaged, with whom, and when."""

from wagma.algorithms.adpsgd import ADPSGD
from wagma.algorithms.allreduce import AllreduceSGD
from wagma.algorithms.base import Algorithm
from wagma.algorithms.dpsgd import DPSGD
from wagma.algorithms.eager import EagerSGD
from wagma.algorithms.local import LocalSGD
from wagma.algorithms.sgp import SGP
from wagma.algorithms.wagma import WAGMA

__all__ = [
    "ADPSGD",
    "DPSGD",
    "SGP",
    "WAGMA",
    "Algorithm",
    "AllreduceSGD",
    "EagerSGD",
    "LocalSGD",
]
