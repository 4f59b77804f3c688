"""Gradients with a NaN or an infinity: refused, or skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from wagma.training.flat_gradients import FlatGradients
    from wagma.training.strategies.base import Algorithm

Nonfinite = Literal["error", "skip"]


class NonfiniteGradients:
    """Refuse gradients that are not finite, or skip and count them.

    Args:
        what: "error" or "skip".

    Attributes:
        skipped: number of skipped gradients.
    """

    def __init__(self, what: Nonfinite) -> None:
        self.what = what
        self.skipped = 0

    def check(self) -> None:
        """Raise ValueError if `what` is unknown."""
        if self.what not in get_args(Nonfinite):
            raise ValueError(f"on_nonfinite={self.what!r} must be 'error' or 'skip'")

    def passes(self, gradients: FlatGradients, algorithm: Algorithm) -> bool:
        """Return whether the gathered gradients are finite, so that they may be sent.

        Raises:
            FloatingPointError: they are not finite, and `what` is "error".
        """
        wrong = gradients.first_nonfinite()
        if wrong is None:
            return True
        if self.what == "skip":
            self.skipped += 1
            return False
        raise FloatingPointError(
            f"the gradient of parameter {wrong} at version {algorithm.version} is not finite on "
            f"rank {algorithm.rank}, and was not sent: lower the learning rate, or leave such "
            'gradients out with on_nonfinite="skip"'
        )
