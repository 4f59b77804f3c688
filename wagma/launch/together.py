"""Common errors of launched ranks: an error on one rank ends all, with one message."""

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

T = TypeVar("T")

FAILED = 1  # exit status
PASSED_ON_S = 0.2  # within which a launcher forwards a rank's output


def on_world(parser: argparse.ArgumentParser, run: Callable[[MPI.Intracomm], int]) -> int:
    """Run on all ranks of COMM_WORLD and return the exit status; collective.

    Args:
        parser: reports the error if `run` raises InputError on all ranks.
        run: a collective function that returns the exit status.
    """
    if absent := missing("mpi4py"):
        parser.error(absent)
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
            comm.Barrier()  # launchers kill the other ranks when the first one ends


def everywhere(comm: MPI.Intracomm, check: Callable[[], T]) -> T:
    """Return the result of `check` on this rank; collective.

    Raises:
        InputError: `check` failed on a rank.
    """
    error = None
    try:
        result = check()
    except (ImportError, InputError, OSError, TypeError, ValueError) as caught:
        error = str(caught)
    # Raise on all ranks, because one rank may have prepared something for all.
    errors = [text for text in gather(comm, error) if text is not None]
    if errors:
        raise InputError(errors[0])
    return result


def check_transport(name: str, *, one_node: bool) -> None:
    """Check that handles can use this transport, and the options in the environment; local.

    Args:
        name: value of `Options.transport`, perhaps a wrong one.
        one_node: whether all ranks share memory.

    Raises:
        ImportError: the transport over this MPI is not built.
        ValueError: the transport needs shared memory that the ranks do not have, or a variable of
            an option has a wrong value.
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
    """End all ranks when this one fails, because the others would wait for it."""
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
    """End all ranks after a short pause, without which launchers may lose output."""
    sys.stderr.flush()
    sys.stdout.flush()
    time.sleep(PASSED_ON_S)
    comm.Abort(FAILED)
