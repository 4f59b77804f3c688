"""Log lines that name the rank they come from."""

import logging
from collections.abc import MutableMapping
from typing import Any


def rank_prefix(rank: int, size: int) -> str:
    """Return the prefix of a rank's log lines: ``[rank 2/4]``."""
    return f"[rank {rank}/{size}]"


class RankLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose messages begin with ``[rank 2/4]``."""

    def __init__(self, name: str, rank: int, size: int) -> None:
        super().__init__(logging.getLogger(name))
        self._prefix = rank_prefix(rank, size)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the prefix before `msg`."""
        return f"{self._prefix} {msg}", kwargs
