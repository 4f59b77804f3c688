"""Plain data through a stream socket that never blocks: frames of JSON, each after its length.

Nothing that comes is ever executed, and no more is kept than `longest` bytes. What the other end
does, or does not do, holds nobody up: what has not been read or sent yet waits here.
"""

from __future__ import annotations

import json
import math
import operator
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["LONGEST", "Link", "encode", "plain", "wait_for"]

LONGEST = 1 << 26  # bytes of what one rank says at a time
_PREFIX = 4  # bytes that hold a length
_READ = 1 << 20
_LINGER_S = 1.0


def encode(value: Any) -> bytes:
    """Return plain data as JSON.

    Raises:
        TypeError, ValueError: it is something else, or too much.
    """
    text = json.dumps(value, default=_number, separators=(",", ":")).encode()
    if len(text) > LONGEST:
        raise ValueError(
            f"{len(text)} bytes are more than a rank may tell the others at a time ({LONGEST})"
        )
    return text


def plain(value: Any) -> Any:
    """Return what the other ranks get for `value`: lists for tuples, and numbers of Python."""
    return json.loads(encode(value))


def _number(value: Any) -> int | float:
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"{type(value).__name__} is no plain data: ranks tell each other numbers, text, None, "
            "lists and dicts"
        ) from None


class Link:
    """One end of a connection.

    Args:
        end: the connected socket, which is closed with the link.
        longest: bytes of a message that may come.

    Attributes:
        longest: as given; may be changed.
    """

    def __init__(self, end: socket.socket, longest: int) -> None:
        end.setblocking(False)
        self._end = end
        self._came = bytearray()
        self._unsent = bytearray()
        self.longest = longest

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._end.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits until the other end has read."""
        return bool(self._unsent)

    def send(self, what: str, content: Any) -> None:
        """Send a message, or what the socket takes of it now; see `flush`.

        The other end may be gone, which shows when it is listened to.
        """
        text = encode([what, content])
        self._unsent += len(text).to_bytes(_PREFIX) + text
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        try:
            while self._unsent:
                del self._unsent[: self._end.send(self._unsent[:_READ])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[tuple[str, Any]]:
        """Return the messages that have come, without waiting.

        Raises:
            EOFError: the other end is gone.
            ValueError: what came is no message, or too long.
        """
        try:
            content = self._end.recv(_READ)
        except BlockingIOError:
            return []
        except OSError:
            content = b""
        if not content:
            raise EOFError
        self._came += content
        messages = []
        while (end := self._complete()) is not None:
            messages.append(_decode(bytes(self._came[_PREFIX:end])))
            del self._came[:end]
        return messages

    def _complete(self) -> int | None:
        """Return where the first message ends; None: it has not come yet."""
        if len(self._came) < _PREFIX:
            return None
        length = int.from_bytes(self._came[:_PREFIX])
        if length > self.longest:
            raise ValueError(f"a message of {length} bytes is too long")
        end = _PREFIX + length
        return end if len(self._came) >= end else None

    def finish(self) -> None:
        """Close, after what waits was sent; that takes a second at most."""
        until = time.monotonic() + _LINGER_S
        while self._unsent and (left := until - time.monotonic()) > 0:
            wait_for([], [self], left)
        self.close()

    def close(self) -> None:
        """Close the socket at once."""
        self._end.close()


def _decode(text: bytes) -> tuple[str, Any]:
    try:
        message = json.loads(text)  # its errors are ValueErrors, as those of the encoding are
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not (isinstance(message, list) and len(message) == 2 and isinstance(message[0], str)):
        raise ValueError("what came is no message")
    return message[0], message[1]


def wait_for(
    readers: Sequence[Link | socket.socket], writers: Sequence[Link], seconds: float
) -> list[Link | socket.socket]:
    """Wait until something comes or can be sent, which is sent; return those of which one can read.

    Args:
        readers: that are looked at.
        writers: links of which some may have something to send.
        seconds: to wait at most.
    """
    poll = select.poll()
    wanted: dict[int, int] = {}
    for reader in readers:
        wanted[reader.fileno()] = select.POLLIN
    for writer in writers:
        if writer.unsent:
            number = writer.fileno()
            wanted[number] = wanted.get(number, 0) | select.POLLOUT
    for number, events in wanted.items():
        poll.register(number, events)
    ready = dict(poll.poll(math.ceil(seconds * 1000)))
    for writer in writers:
        if ready.get(writer.fileno(), 0) & ~select.POLLIN:
            writer.flush()
    return [reader for reader in readers if ready.get(reader.fileno(), 0) & ~select.POLLOUT]
