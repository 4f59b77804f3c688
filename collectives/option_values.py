"""Values of options: each function checks one and returns what the engine takes for it.

Errors name the option and show the value that the user passed.
"""

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ._engine import PROGRESS, QUORUM_MAJORITY

# Convert the value of a named option to the engine's value; None: the engine's default. One option
# of the user may set several of the engine.
Convert: TypeAlias = Callable[[str, Any], int | float | dict[str, int | float] | None]

SHORTEST_WARNING_S = 0.1  # a user reads no faster
QUORUMS = {"all": 0, "majority": QUORUM_MAJORITY}
_PROGRESS = ("spin", "yield", "sleep:US", "main")
_SLEEP = "sleep:"


def alternatives(values: Iterable[str]) -> str:
    """Return "'a', 'b' or 'c'"."""
    *others, last = map(repr, values)
    return f"{', '.join(others)} or {last}"


def check_switch(name: str, value: object) -> None:
    """Check that `value` is True or False; raise TypeError where it is not."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False")


def switch(name: str, value: Any) -> int:
    """Return 1 for True and 0 for False."""
    check_switch(name, value)
    return int(value)


def _check_word(name: str, value: Any, known: Iterable[str]) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be {alternatives(known)}")
    if value not in known:
        raise ValueError(f"{name}={value!r} must be {alternatives(known)}")


def word(*known: str) -> Convert:
    """Return a check that the value is one of the words `known`; the engine gets no value."""

    def convert(name: str, value: Any) -> dict[str, int | float]:
        _check_word(name, value, known)
        return {}

    return convert


def choice(known: Mapping[str, int]) -> Convert:
    """Return a conversion of one of the words `known` to its number."""

    def convert(name: str, value: Any) -> int:
        _check_word(name, value, known)
        return known[value]

    return convert


def integer(name: str, value: Any) -> int:
    """Return an int."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be an int") from None


def positive(name: str, value: Any) -> int:
    """Return an int of 1 or more; 0 stands for None."""
    if value is None:
        return 0
    number = integer(name, value)
    if number < 1:
        raise ValueError(f"{name}={number} must be at least 1")
    return number


def quorum(name: str, value: Any) -> int:
    """Convert a number of members, "all" or "majority"; other options take numbers only."""
    if isinstance(value, str) and name == "quorum":
        if value not in QUORUMS:
            raise ValueError(f"quorum={value!r} must be an int, {alternatives(QUORUMS)}")
        return QUORUMS[value]
    return positive(name, integer(name, value))


def seed(name: str, value: Any) -> int:
    """Return an int of 64 bits without a sign."""
    number = integer(name, value)
    if not 0 <= number < 2**64:
        raise ValueError(f"{name}={number} must be 0 to 2**64 - 1")
    return number


def _number_of_seconds(name: str, value: Any) -> float:
    if isinstance(value, (str, bool)):
        raise TypeError(f"{name}={value!r} must be a number of seconds")
    try:
        number = float(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be a number of seconds") from None
    if not number >= 0:
        raise ValueError(f"{name}={number} must be 0 or more seconds")
    return number


def seconds(none: float | None) -> Convert:
    """Return a conversion of seconds, 0 or more; `none` stands for None."""

    def convert(name: str, value: Any) -> float | None:
        return none if value is None else _number_of_seconds(name, value)

    return convert


def auto_seconds(name: str, value: Any) -> float:
    """Return seconds, 0 or more; -1 stands for "auto" and None."""
    if isinstance(value, str) and value != "auto":
        raise TypeError(f'{name}={value!r} must be a number of seconds, or "auto"')
    return -1.0 if value is None or value == "auto" else _number_of_seconds(name, value)


def warning_interval(name: str, value: Any) -> float:
    """Return seconds between warnings; -1 stands for None."""
    if value is None:
        return -1.0
    number = _number_of_seconds(name, value)
    if number < SHORTEST_WARNING_S:
        raise ValueError(
            f"{name}={number:g} must be {SHORTEST_WARNING_S} seconds or more, or None for "
            "no warnings"
        )
    return number


def progress(name: str, value: Any) -> dict[str, int | float]:
    """Convert "spin", "yield", "sleep:US" or "main"."""
    if not isinstance(value, str) or not value.startswith(_SLEEP):
        _check_word(name, value, _PROGRESS)
        return {"progress": PROGRESS[value]}
    micros = value.removeprefix(_SLEEP)
    if not (micros.isascii() and micros.isdecimal() and 10 <= int(micros) <= 1_000_000):
        raise ValueError(
            f"{name}={value!r}: the microseconds after {_SLEEP!r} must be 10 to 1000000, as in "
            "'sleep:1000'"
        )
    return {"progress": PROGRESS["sleep"], "progress_sleep": int(micros) / 1e6}


def core(name: str, value: Any) -> int:
    """Return the number of a core; -1 stands for None."""
    if value is None:
        return -1
    number = integer(name, value)
    if number < 0:
        raise ValueError(f"{name}={number} must be the number of a core, or None for any")
    return number


# ---- texts of the environment --------------------------------------------------------------------
def number_in_text(text: str) -> float | None:
    """Return the number that `text` holds, or None for "none"."""
    return None if text.lower() == "none" else float(text)


def core_in_text(text: str) -> int | None:
    """Return the core that `text` names; "last": the last core of this rank's affinity mask."""
    if text.lower() == "none":
        return None
    if text.lower() != "last":
        return int(text)
    own = os.sched_getaffinity(0)
    # Without binding all ranks would have the same last core.
    return max(own) if len(own) < (os.cpu_count() or 1) else None
