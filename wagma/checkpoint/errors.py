"""Errors of checkpoints: an error on the disk of one rank is raised on every rank."""

from collections.abc import Callable
from typing import Any

from wagma.collectives.errors import WagmaError
from wagma.training.strategies.base import Algorithm
from wagma.units import rank_list


class CheckpointError(WagmaError, OSError):
    """A folder or a file cannot be written or read, or another job uses the folder."""


class CheckpointMismatchError(WagmaError, ValueError):
    """A checkpoint is of another training; the message lists all differences.

    Attributes:
        differences: one line per difference.
    """

    def __init__(self, folder: str, differences: list[str]) -> None:
        self.differences = list(differences)
        lines = "".join(f"\n  {line}" for line in differences)
        super().__init__(
            f"{folder} does not match this training:{lines}\n"
            "Make the training as it was, save into another folder, or take the parts that fit "
            "out of torch.load(file, weights_only=True)"
        )


def together(algorithm: Algorithm, function: Callable[[], Any], what: str) -> list[Any]:
    """Return the results of `function()` of all ranks, by rank; collective.

    Args:
        algorithm: the algorithm of the ranks.
        function: returns plain data, see `wagma.collectives.rendezvous.meeting.Meeting.exchange`.
        what: the operation for error messages, such as "save version 3".

    Raises:
        CheckpointError: `function` raised OSError on a rank; on every rank.
        any other exception of `function` on a rank; on every rank.
    """
    caught: list[OSError] = []

    def guarded() -> tuple[Any, str | None]:
        try:
            return function(), None
        except OSError as error:
            caught.append(error)
            return None, describe(error)

    with algorithm.meet() as meeting:
        results = meeting.exchange(guarded, last=True)
    failed: dict[str, list[int]] = {}
    for rank, (_, text) in enumerate(results):
        if text is not None:
            failed.setdefault(text, []).append(rank)
    if failed:
        texts = "; ".join(f"{rank_list(ranks)}: {text}" for text, ranks in failed.items())
        raise CheckpointError(f"cannot {what}: {texts}") from (caught[0] if caught else None)
    return [value for value, _ in results]


def describe(error: OSError) -> str:
    """Return the reason of an error, and its file."""
    if error.errno is None:
        return str(error)
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror}{where}"
