"""End a training in time when its job is about to end, and start it again."""

from wagma.preemption.preemption import Preemption
from wagma.preemption.requeue import EXIT_RESTART

__all__ = ["EXIT_RESTART", "Preemption"]
