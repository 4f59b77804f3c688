"""Training algorithms: what is averaged, with whom, and when."""

from wagma.training.strategies.adpsgd import ADPSGD
from wagma.training.strategies.allreduce import AllreduceSGD
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.dpsgd import DPSGD
from wagma.training.strategies.eager import EagerSGD
from wagma.training.strategies.local import LocalSGD
from wagma.training.strategies.sgp import SGP
from wagma.training.strategies.wagma import WAGMA

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
