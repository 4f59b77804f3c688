"""Options and types of values that several commands share."""

import argparse
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from . import values

T = TypeVar("T")
Add = Callable[..., Any]  # add_argument of a parser or of a group of options

TRANSPORTS = ("auto", "shm", "mpi")


def add_group_size(add: Add) -> None:
    """Add --group-size of a training: an int or None."""
    add(
        "--group-size",
        type=integer(1),
        metavar="S",
        help="WAGMA: largest number of ranks in a group (default: the square root of the ranks, "
        "rounded up to a power of two)",
    )


def add_transport(add: Add) -> None:
    """Add --transport of a training: one of `TRANSPORTS`."""
    add(
        "--transport",
        choices=TRANSPORTS,
        default="auto",
        help="transport between ranks: shm, shared memory of one node; mpi, messages; auto, shared "
        "memory if all ranks are on one node (default: %(default)s)",
    )


def add_progress(add: Add, what: str) -> None:
    """Add --progress for `is_shown`; `what` is what it shows, such as "a bar"."""
    add(
        "--progress",
        choices=("auto", "always", "never"),
        default="auto",
        help=f"{what} on rank 0; auto: when standard error is a terminal, which it is not under "
        "most mpiexec (default: %(default)s)",
    )


def is_shown(progress: str) -> bool:
    """Return whether rank 0 shows progress, given the value of --progress."""
    return progress == "always" or (progress == "auto" and sys.stderr.isatty())


def reader(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return `read` for argparse, which only shows the message of an ArgumentTypeError."""

    def value(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def integer(lowest: int) -> Callable[[str], int]:
    """Return an argparse type for whole numbers from `lowest`."""
    return reader(lambda text: values.integer(text, lowest))
