"""How ranks that meet through sockets make sure of each other.

    rank 0   asks whoever connects ("who", with a number that was never used)
    another  says who it is ("hello", with a number of its own)
    rank 0   takes it in ("welcome")

Both prove with the other's number that they know the job's key.
"""

from __future__ import annotations

import os
import socket
from typing import Any, NamedTuple

from .address import credentials, proof, same
from .job import REMEDY, Job, outlook
from .link import LONGEST, Link, wait_for
from .patience import Wait

__all__ = ["Hello", "Stranger", "introduce"]

_LONGEST = 2048  # bytes of a message of one who has proved nothing
_TICK_S = 0.05  # how often waits look at the clock


class Hello(NamedTuple):
    """What a rank says of itself."""

    rank: int
    size: int
    pid: int
    launch: str
    outlook: str
    nonce: str


_KINDS = [int, int, int, str, str, str]


class Stranger(Link):
    """A connection of somebody who has proved nothing yet, and is asked who that is."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end, _LONGEST)
        self.nonce = os.urandom(16).hex()
        self.send("who", self.nonce)

    def introduced(self, job: Job) -> Hello | None:
        """Return what a rank of the job says, if it has said it.

        Raises:
            ValueError, EOFError: it is no rank of the job, or gone.
        """
        messages = self.receive()
        if not messages:
            return None
        [(what, content)] = messages
        if what != "hello" or not isinstance(content, list):
            raise ValueError("that is no hello")
        *said, proved = content
        if [type(each) for each in said] != _KINDS:
            raise ValueError("that is no hello of this version of wagma")
        if not same(proved, proof(job, "hello", [self.nonce, *said])):
            raise ValueError("it does not know the job's key")
        hello = Hello(*said)
        if not 0 < hello.rank < hello.size:
            raise ValueError("no such rank calls another")
        return hello

    def welcome(self, job: Job, hello: Hello) -> None:
        """Tell the rank that it has found rank 0 of its job."""
        self.send("welcome", proof(job, "welcome", hello.nonce))


def introduce(
    end: socket.socket, job: Job, wait: Wait
) -> tuple[Link, list[tuple[str, Any]]] | None:
    """Say who this is.

    Args:
        end: of a connection to the job's address.
        job: with this rank's number.
        wait: for the answer.

    Returns:
        The link to rank 0, and what else it has said; None: it was just leaving.

    Raises:
        RuntimeError: the one at the other end is no rank 0 of this job.
    """
    pid, _ = credentials(end)
    link = Link(end, _LONGEST)

    def heard() -> list[tuple[str, Any]]:
        while not (messages := link.receive()):
            wait_for([link], [link], _TICK_S)
            wait.check((0,))
        return messages

    try:
        [(_, asked)] = heard()
        nonce = os.urandom(16).hex()
        said = [job.rank, job.size, os.getpid(), job.launch, outlook(os.environ), nonce]
        link.send("hello", [*said, proof(job, "hello", [asked, *said])])
        link.longest = job.size * (LONGEST + 1)  # all values may follow the welcome
        (_, proved), *others = heard()
        if not same(proved, proof(job, "welcome", nonce)):
            raise ValueError
    except EOFError:
        link.close()
        return None
    except ValueError:
        link.close()
        raise RuntimeError(
            f"process {pid} has the address of this job and does not know its key: {REMEDY}"
        ) from None
    except BaseException:
        link.close()
        raise
    return link, others
