"""Errors of checkpoints."""

from __future__ import annotations

from wagma.collectives.errors import WagmaError

__all__ = ["CheckpointError", "CheckpointMismatchError"]


class CheckpointError(WagmaError, OSError):
    """A folder or a file cannot be written or read, or another job uses the folder."""


class CheckpointMismatchError(WagmaError, ValueError):
    """A checkpoint is of another training; the message lists everything that does not match.

    Attributes:
        differences: one line for each.
    """

    def __init__(self, folder: str, differences: list[str]) -> None:
        self.differences = list(differences)
        lines = "".join(f"\n  {line}" for line in differences)
        super().__init__(
            f"{folder} is the checkpoint of another training:{lines}\n"
            "Make the training as it was, save into another folder, or take the parts that fit "
            "out of torch.load(file, weights_only=True)"
        )
