"""Log lines that name the rank they come from."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from mpi4py import MPI

__all__ = ["RankLogger"]


class RankLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages begin with ``[rank 2/4]``.

    Args:
        name: of the logger, as for `logging.getLogger`.
        comm: whose rank is named.
    """

    def __init__(self, name: str, comm: MPI.Intracomm) -> None:
        super().__init__(logging.getLogger(name))
        self._prefix = f"[rank {comm.rank}/{comm.size}]"

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Puts the prefix before `msg`."""
        return f"{self._prefix} {msg}", kwargs
