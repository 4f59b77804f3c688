"""The ranks of a launch: what is wrong on one of them ends all, with one message."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

from wagma.launch.agreement import InputError
from wagma.launch.packages import missing
from wagma.launch.ranks import gather

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["FAILED", "abort", "abort_on_error", "check_transport", "everywhere", "on_world"]

T = TypeVar("T")

FAILED = 1  # exit status
PASSED_ON_S = 0.2  # within which a launcher has passed on what a rank said


def on_world(parser: argparse.ArgumentParser, run: Callable[[MPI.Intracomm], int]) -> int:
    """Runs on the ranks of COMM_WORLD; returns the exit status. Collective.

    Args:
        parser: says what is wrong when `run` raises InputError, on all ranks.
        run: is collective.
    """
    if said := missing("mpi4py"):
        parser.error(said)
    from wagma.collectives.communicator import check_communicator, import_mpi

    try:
        comm: MPI.Intracomm = import_mpi().COMM_WORLD
        check_communicator(comm)
    except (ImportError, RuntimeError) as error:
        parser.error(str(error))
    try:
        return run(comm)
    except InputError as error:
        sys.stdout.flush()
        try:
            parser.error(str(error))
        finally:
            comm.Barrier()  # launchers end the others, and their output, with the first to end


def everywhere(comm: MPI.Intracomm, check: Callable[[], T]) -> T:
    """What `check` returns on this rank; collective.

    Raises:
        InputError: it failed on a rank.
    """
    error = None
    try:
        found = check()
    except (ImportError, InputError, OSError, TypeError, ValueError) as caught:
        error = str(caught)
    # One rank may have read or prepared something for all.
    errors = [text for text in gather(comm, error) if text is not None]
    if errors:
        raise InputError(errors[0])
    return found


def check_transport(name: str, *, one_node: bool) -> None:
    """Whether handles can be made with this option, and with the environment's; local.

    Args:
        name: as `Options.transport`, or what somebody took for one.
        one_node: all ranks share memory.

    Raises:
        ImportError: there is nothing that sends messages over this MPI.
        ValueError: it needs memory that the ranks do not share, or a variable that sets an option
            is wrong.
    """
    from wagma.collectives import transport
    from wagma.collectives.options import Options

    Options().with_environment()
    if name == "mpi" or (name == "auto" and not one_node):
        transport.load()
    elif name == "shm" and not one_node:
        raise ValueError(
            "transport shm: the ranks are on several nodes and share no memory; leave --transport "
            "(WAGMA_TRANSPORT) at auto, or use mpi"
        )


@contextmanager
def abort_on_error(comm: MPI.Intracomm) -> Iterator[None]:
    """End all ranks when one fails: the others would wait for it."""
    from wagma.collectives import WagmaError

    try:
        yield
    except Exception as error:
        if isinstance(error, (WagmaError, OSError, MemoryError)):
            sys.stderr.write(f"rank {comm.Get_rank()}: {type(error).__name__}: {error}\n")
        else:
            traceback.print_exc()
        abort(comm)


def abort(comm: MPI.Intracomm) -> NoReturn:
    """End all ranks, a moment later: launchers may lose what was said just before."""
    sys.stderr.flush()
    sys.stdout.flush()
    time.sleep(PASSED_ON_S)
    comm.Abort(FAILED)
