"""Messages of plain data through a non-blocking stream socket: JSON, each after its length.

Received data is never executed, and at most `longest` bytes of it are kept. A slow peer blocks no
call: unsent data and incomplete messages wait in the link.
"""

import json
import math
import operator
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

LONGEST = 1 << 26  # bytes of one rank's value
_PREFIX = 4  # bytes that hold a length
_READ = 1 << 20
_LINGER_S = 1.0


def encode(value: Any) -> bytes:
    """Return plain data as JSON.

    Raises:
        TypeError, ValueError: the value is no plain data, or too long.
    """
    text = json.dumps(value, default=_number, separators=(",", ":")).encode()
    if len(text) > LONGEST:
        raise ValueError(
            f"{len(text)} bytes are more than a rank may send the others at a time ({LONGEST})"
        )
    return text


def plain(value: Any) -> Any:
    """Return `value` as the other ranks receive it: tuples become lists, numbers Python's."""
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
            f"{type(value).__name__} is no plain data: ranks exchange numbers, text, None, lists "
            "and dicts"
        ) from None


class Link:
    """One end of a connection.

    Args:
        end: the connected socket; the link closes it.
        longest: bytes of the longest message to accept.

    Attributes:
        longest: as given; may be changed.
    """

    def __init__(self, end: socket.socket, longest: int) -> None:
        end.setblocking(False)
        self._end = end
        self._received = bytearray()
        self._unsent = bytearray()
        self.longest = longest

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._end.fileno()

    @property
    def unsent(self) -> bool:
        """Return whether data waits until the other end has read."""
        return bool(self._unsent)

    def send(self, what: str, content: Any) -> None:
        """Send a message, as far as the socket takes it now; see `flush`.

        If the other end is closed, `receive` raises EOFError.
        """
        text = encode([what, content])
        self._unsent += len(text).to_bytes(_PREFIX) + text
        self.flush()

    def flush(self) -> None:
        """Send waiting data, as far as the socket takes it."""
        try:
            while self._unsent:
                del self._unsent[: self._end.send(self._unsent[:_READ])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def receive(self) -> list[tuple[str, Any]]:
        """Return the messages that have arrived, without waiting.

        Raises:
            EOFError: the other end is closed.
            ValueError: the data is no message, or too long.
        """
        try:
            content = self._end.recv(_READ)
        except BlockingIOError:
            return []
        except OSError:
            content = b""
        if not content:
            raise EOFError
        self._received += content
        messages = []
        while (end := self._end_of_message()) is not None:
            messages.append(_decode(bytes(self._received[_PREFIX:end])))
            del self._received[:end]
        return messages

    def _end_of_message(self) -> int | None:
        """Return where the first message ends; None: it is incomplete."""
        if len(self._received) < _PREFIX:
            return None
        length = int.from_bytes(self._received[:_PREFIX])
        if length > self.longest:
            raise ValueError(f"a message of {length} bytes is too long")
        end = _PREFIX + length
        return end if len(self._received) >= end else None

    def finish(self) -> None:
        """Send waiting data for one second at most, then close."""
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
        raise ValueError("the data is no message")
    return message[0], message[1]


def wait_for(
    readers: Sequence[Link | socket.socket], writers: Sequence[Link], seconds: float
) -> list[Link | socket.socket]:
    """Wait until a reader has data or a writer can send, and send; return the readers with data.

    Args:
        readers: links and sockets to receive from.
        writers: links that may have unsent data.
        seconds: longest wait.
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
