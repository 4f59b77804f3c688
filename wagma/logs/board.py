"""Scalars for TensorBoard, if it is installed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wagma.launch.packages import missing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_log = logging.getLogger("wagma")


def is_wanted(tensorboard: bool | Literal["auto"]) -> bool:
    """Return whether to write scalars for TensorBoard.

    Raises:
        ImportError: `tensorboard` is True, and TensorBoard is not installed.
    """
    if tensorboard not in (True, False, "auto"):
        raise ValueError(f'tensorboard is {tensorboard!r}: it has to be True, False or "auto"')
    if not tensorboard:
        return False
    absent = missing("tensorboard")
    if absent and tensorboard is True:
        raise ImportError(f"tensorboard=True, but {absent}")
    return not absent


class Board:
    """Write the scalars of one rank; an error is logged once and ends the writing.

    Args:
        folder: folder of this rank alone.
        version: version at which the training resumes; TensorBoard hides older scalars from it on.
        flush_seconds: seconds between writes.
    """

    def __init__(self, folder: Path, version: int | None, flush_seconds: float) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        try:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(
                str(folder), purge_step=version, flush_secs=max(1, round(flush_seconds))
            )
        except Exception as error:
            self._give_up(error)

    def add(self, version: int, values: Mapping[str, int | float]) -> None:
        """Add the scalars of one version."""
        if self._writer is None:
            return
        try:
            for name, value in values.items():
                self._writer.add_scalar(name, value, version)
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:
        """Write waiting scalars; may be called again."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._writer = None
        _log.error("no more scalars for TensorBoard in %s: %s", self._folder, error)
