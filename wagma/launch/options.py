"""Options, and kinds of values, that several commands have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from . import values

__all__ = [
    "TRANSPORTS",
    "add_group_size",
    "add_progress",
    "add_transport",
    "integer",
    "is_shown",
    "reader",
]

T = TypeVar("T")
Add = Callable[..., Any]  # add_argument of a parser or of a group of options

TRANSPORTS = ("auto", "shm", "mpi")


def add_group_size(add: Add) -> None:
    """--group-size, of a training: an int, or None."""
    add(
        "--group-size",
        type=integer(1),
        metavar="S",
        help="of WAGMA: ranks that average at a step (default: the square root of the ranks, "
        "rounded up to a power of two)",
    )


def add_transport(add: Add) -> None:
    """--transport, of a training: one of `TRANSPORTS`."""
    add(
        "--transport",
        choices=TRANSPORTS,
        default="auto",
        help="what the ranks talk through: shared memory of one node, messages over MPI, or auto: "
        "memory where all are on one node (default: %(default)s)",
    )


def add_progress(add: Add, what: str) -> None:
    """--progress, for `is_shown`; `what` is shown, such as "a bar"."""
    add(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help=f"{what} on rank 0; auto: when standard error is a terminal, which it is not under "
        "most mpiexec (default: %(default)s)",
    )


def is_shown(progress: str) -> bool:
    """Whether rank 0 shows what --progress is about, by the option's value."""
    return progress == "always" or (progress == "auto" and sys.stderr.isatty())


def reader(read: Callable[[str], T]) -> Callable[[str], T]:
    """`read` for argparse, which shows the words of ArgumentTypeError alone."""

    def value(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def integer(lowest: int) -> Callable[[str], int]:
    """Whole numbers from `lowest`, for argparse."""
    return reader(lambda text: values.integer(text, lowest))
