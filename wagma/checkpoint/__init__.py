"""Checkpoints of a distributed training that survive a crash at any moment."""

from wagma.checkpoint.checkpointer import Checkpointer
from wagma.checkpoint.errors import CheckpointError, CheckpointMismatchError

__all__ = ["CheckpointError", "CheckpointMismatchError", "Checkpointer"]
