"""The text form of an imbalance, for command lines.

    SPEC  = "none" | EVENT {"," EVENT}
    EVENT = NAME {":" VALUE}

Values are given in order, and the last may be left out where they have defaults: ``paper`` is
``paper:2:0.32``. Times are seconds, or have a unit: ``paper:2:320ms``. Delays add up, and faults
are added: ``paper:2:0.3,one-server:3:0.1,kill:1:50``. `forms` lists the events, and
`wagma.inject.parse` reads a whole imbalance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

from wagma.inject.checks import check_rank
from wagma.inject.draws import (
    Delays,
    DropCompute,
    Exponential,
    Heterogeneous,
    Lognormal,
    Normal,
    OneServer,
    Paper,
)
from wagma.inject.faults import Fault, Kill, Stop
from wagma.inject.trace import Trace
from wagma.units import parse_seconds

NONE = "none"

EVENTS: dict[str, type[Delays] | type[Fault]] = {
    event.name: event
    for event in (
        *(Paper, OneServer, Heterogeneous, Exponential, Lognormal, DropCompute, Normal, Trace),
        *(Stop, Kill),
    )
}


def _seconds(word: str) -> float:
    """Return the seconds of a number, or of a time with its unit."""
    try:
        return float(word)
    except ValueError:
        return parse_seconds(word)


# Fields by the text of their types, which dataclasses keep; a tuple takes all that is left.
_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "an integer"),
    "float": (float, "a number"),
    "Seconds": (_seconds, "a time such as 300ms, or a number of seconds,"),
    "tuple[float, ...]": (float, "a number"),
    "str": (str, "text"),
}


def _values(event: type[Any] | Any) -> list[Field[Any]]:
    """Return the fields that the text form has."""
    return [f for f in fields(event) if f.init and f.name not in ("size", "seed")]


def _form(event: type[Any]) -> str:
    required, optional = event.name, []
    for value in _values(event):
        name = value.name.upper() + ("..." if str(value.type).startswith("tuple") else "")
        if value.default is MISSING:
            required += f":{name}"
        else:
            optional.append(name)
    return f"{required}{''.join(f'[:{name}' for name in optional)}{']' * len(optional)}"


def forms() -> list[str]:
    """Return the form of every event, such as ``paper[:DELAYED_RANKS[:SECONDS]]``."""
    return [_form(event) for event in EVENTS.values()]


def read(text: str, size: int, seed: int, place: int) -> Delays | Fault:
    """Read one event, the `place`-th of an imbalance; see `wagma.inject.parse`."""
    name, *words = text.split(":")
    if name not in EVENTS:
        raise ValueError(f"unknown imbalance {name!r}: choose from {', '.join([NONE, *EVENTS])}")
    event: type[Any] = EVENTS[name]
    names = {f.name for f in fields(event)}
    context: dict[str, Any] = {}
    if "size" in names:
        context["size"] = size
    if "seed" in names:
        context["seed"] = (seed, place) if place else seed
    try:
        made: Delays | Fault = event(**context, **_read(event, words))
        if isinstance(made, Fault):
            check_rank(made.rank, size)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None
    return made


def _read(event: type[Any], words: list[str]) -> dict[str, Any]:
    """Return the values of an event by the names of its fields."""
    read: dict[str, Any] = {}
    left = list(words)
    for value in _values(event):
        reader, what = _READERS[str(value.type)]
        several = str(value.type).startswith("tuple")
        taken, left = (left, []) if several else (left[:1], left[1:])
        if not taken:
            if value.default is MISSING:
                raise ValueError(f"{value.name} is missing: {_form(event)}")
            continue
        try:
            numbers = tuple(reader(word) for word in taken)
        except ValueError:
            wrong = ":".join(taken)
            raise ValueError(f"{value.name} is {wrong!r}: {what} is needed") from None
        read[value.name] = numbers if several else numbers[0]
    if left:
        raise ValueError(f"{':'.join(left)!r} is too much: {_form(event)}")
    return read


def spell(event: Delays | Fault) -> str:
    """Return one event's text form.

    Raises:
        ValueError: the path of a trace has a colon or a comma, which separate values and events.
    """
    words = [event.name]
    for field in _values(event):
        value = getattr(event, field.name)
        words += [str(part) for part in value] if isinstance(value, tuple) else [str(value)]
    for word in words:
        if ":" in word or "," in word:
            raise ValueError(f"{word!r} has no text form: it has a colon or a comma")
    return ":".join(words)
