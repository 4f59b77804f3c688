"""Training algorithms: what is averaged, with whom, and when."""

from wagma.algorithms.allreduce import AllreduceSGD
from wagma.algorithms.base import Algorithm
from wagma.algorithms.wagma import WAGMA

__all__ = ["WAGMA", "Algorithm", "AllreduceSGD"]
