"""The public path of the training algorithms, which lie in `wagma.training.strategies`."""

from wagma.training.strategies import (
    ADPSGD,
    DPSGD,
    SGP,
    WAGMA,
    Algorithm,
    AllreduceSGD,
    EagerSGD,
    LocalSGD,
)

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
