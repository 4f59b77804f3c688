"""Send plain data between ranks through sockets, in frames."""

import socket
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from wagma.collectives.rendezvous import link
from wagma.collectives.rendezvous.link import Link, encode, plain
from wagma.collectives.rendezvous.reports import Report


@pytest.fixture
def ends() -> Any:
    one, other = socket.socketpair()
    yield Link(one, 1 << 20), other
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (None, None),
        ((1, 2.5, "x", True), [1, 2.5, "x", True]),
        ({"a": (np.int64(3), np.float32(0.5))}, {"a": [3, 0.5]}),
        (Fraction(1, 4), 0.25),
        (2**64 + 1, 2**64 + 1),
        (0.1, 0.1),
        (float("inf"), float("inf")),
        ("\ud800 ü \x00", "\ud800 ü \x00"),
        (Report("ValueError", None, "no"), ["ValueError", None, "no"]),
    ],
)
def test_what_arrives(value: Any, arrives: Any) -> None:
    assert plain(value) == arrives


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", [Exception("x")], np.zeros(2), len])
def test_what_is_no_plain_data(value: Any) -> None:
    with pytest.raises(TypeError, match="is no plain data"):
        encode(value)


def test_what_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LONGEST", 100)
    encode("x" * 98)
    with pytest.raises(ValueError, match=r"101 bytes are more .*\(100\)"):
        encode("x" * 99)


def test_a_message_that_comes_in_pieces(ends: tuple[Link, socket.socket]) -> None:
    here, there = ends
    text = b'["value",[1,"two"]]'
    frame = len(text).to_bytes(4, "big") + text
    for byte in frame[:-1]:
        there.send(bytes([byte]))
        assert here.receive() == []
    there.send(frame[-1:] + 2 * frame + frame[:5])
    assert here.receive() == [("value", [1, "two"])] * 3
    there.close()
    with pytest.raises(EOFError):
        here.receive()


def test_nobody_waits_for_one_that_does_not_read(ends: tuple[Link, socket.socket]) -> None:
    here, there = ends
    here.send("value", "x" * (1 << 22))
    here.send("next", None)
    assert here.unsent
    reader = Link(there, 1 << 23)
    came: list[tuple[str, Any]] = []
    while len(came) < 2:
        link.wait_for([], [here], 0)
        came += reader.receive()
    assert [what for what, _ in came] == ["value", "next"]
    assert not here.unsent


@pytest.mark.parametrize(
    "said", [b"\x00\x10\x00\x01", b"\x00\x00\x00\x01x", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x00"]
)
def test_what_is_no_message(ends: tuple[Link, socket.socket], said: bytes) -> None:
    here, there = ends
    there.send(said)
    with pytest.raises(ValueError, match=r"."):
        here.receive()


@pytest.mark.parametrize(
    "content", [None, [], ["ValueError", None], [1, None, "x"], ["x", "y", "z"], {"kind": "x"}]
)
def test_what_is_no_report(content: Any) -> None:
    with pytest.raises(ValueError, match="is no report"):
        Report.of(content)
