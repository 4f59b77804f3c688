"""Handshake of ranks that meet through sockets.

    rank 0   asks each connection for its identity ("who", with a fresh random number)
    another  names its rank and job ("hello", with a random number of its own)
    rank 0   accepts it ("welcome")

Each side proves with the other's number that it knows the job's key.
"""

import os
import socket
from typing import Any, NamedTuple

from .address import credentials, is_proof, proof
from .job import REMEDY, Job, environment_digest
from .link import LONGEST, Link, wait_for
from .patience import Wait

_LONGEST = 2048  # bytes of a message before the handshake is complete
_TICK_S = 0.05  # interval of checks in waits


class Hello(NamedTuple):
    """Identity of a rank, as it sends it."""

    rank: int
    size: int
    pid: int
    launch: str
    environment: str  # see `environment_digest`
    nonce: str


_KINDS = [int, int, int, str, str, str]


class UnverifiedLink(Link):
    """A connection whose other end has not proved yet that it is a rank of the job."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end, _LONGEST)
        self.nonce = os.urandom(16).hex()
        self.send("who", self.nonce)

    def receive_hello(self, job: Job) -> Hello | None:
        """Return the identity of the rank, if it has arrived.

        Raises:
            ValueError, EOFError: the other end is no rank of the job, or is closed.
        """
        messages = self.receive()
        if not messages:
            return None
        [(what, content)] = messages
        if what != "hello" or not isinstance(content, list):
            raise ValueError("that is no hello")
        *identity, proved = content
        if [type(each) for each in identity] != _KINDS:
            raise ValueError("that is no hello of this version of wagma")
        if not is_proof(proved, proof(job, "hello", [self.nonce, *identity])):
            raise ValueError("it does not know the job's key")
        hello = Hello(*identity)
        if not 0 < hello.rank < hello.size:
            raise ValueError("rank 0 gets no hello from such a rank")
        return hello

    def welcome(self, job: Job, hello: Hello) -> None:
        """Accept the rank, and prove that this is rank 0 of its job."""
        self.send("welcome", proof(job, "welcome", hello.nonce))


def introduce(
    end: socket.socket, job: Job, wait: Wait
) -> tuple[Link, list[tuple[str, Any]]] | None:
    """Send this rank's identity to rank 0.

    Args:
        end: socket that is connected to the job's address.
        job: the job, with this rank's number.
        wait: the wait for the answer.

    Returns:
        The link to rank 0 and further messages from it; None: rank 0 was about to leave.

    Raises:
        RuntimeError: the other end is not rank 0 of this job.
    """
    pid, _ = credentials(end)
    link = Link(end, _LONGEST)

    def receive() -> list[tuple[str, Any]]:
        while not (messages := link.receive()):
            wait_for([link], [link], _TICK_S)
            wait.check((0,))
        return messages

    try:
        [(_, challenge)] = receive()
        nonce = os.urandom(16).hex()
        common = environment_digest(os.environ)
        identity = [job.rank, job.size, os.getpid(), job.launch, common, nonce]
        link.send("hello", [*identity, proof(job, "hello", [challenge, *identity])])
        link.longest = job.size * (LONGEST + 1)  # all values may follow the welcome
        (_, proved), *others = receive()
        if not is_proof(proved, proof(job, "welcome", nonce)):
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
