"""Values of options as people write them: 64KiB, 300us, 4:1MiB, 50,90,99. Pure.

Each function reads one kind of value and raises ValueError, with what is wrong and what to write.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from wagma.inject.checks import check_number

__all__ = ["integer", "limits", "names", "percentiles", "quorum", "seconds", "size"]

_NUMBER = re.compile(r"([+-]?[0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_BYTES = {"": 1, "b": 1} | {
    unit: 1 << 10 * power
    for power, units in enumerate(("k kib", "m mib", "g gib"), 1)
    for unit in units.split()
}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def size(text: str) -> int:
    """Bytes, >= 0: plain, or with K, M, G, KiB, MiB or GiB, which are powers of 1024."""
    number, unit = _split(text)
    factor = _BYTES.get(unit)
    if number is None or factor is None:
        raise ValueError(f"{text!r} is no size: write bytes, such as 4096, 64KiB or 1MiB")
    value = number * factor
    if value < 0 or value != int(value):
        raise ValueError(f"{text!r} is no whole number of bytes from 0")
    return int(value)


def seconds(text: str) -> float:
    """Seconds, 0 to 1e6: plain, or with s, ms, us or ns."""
    number, unit = _split(text)
    factor = _SECONDS.get(unit)
    if number is None or factor is None:
        raise ValueError(f"{text!r} is no time: write seconds, such as 0.3, or 300ms, 50us or 1s")
    return check_number(text, number * factor)


def _split(text: str) -> tuple[float | None, str]:
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        return None, ""
    try:
        return float(found[1]), found[2].lower()
    except ValueError:
        return None, ""


def integer(text: str, lowest: int) -> int:
    """A whole number from `lowest`."""
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number: at least {lowest} is needed") from None
    if number < lowest:
        raise ValueError(f"{number} is too small: at least {lowest} is needed")
    return number


def limits(text: str) -> tuple[int | None, int | None]:
    """MIN and MAX, in bytes, of MIN:MAX, MAX, :MAX or MIN:; None: not said."""
    words = text.split(":")
    if len(words) > 2 or not any(words):
        raise ValueError(f"{text!r} is no range: write MIN:MAX, MAX or MIN:")
    smallest = size(words[0]) if len(words) == 2 and words[0] else None
    largest = size(words[-1]) if words[-1] else None
    if 0 in (smallest, largest):
        raise ValueError(f"{text!r} has 0 bytes: at least one element is needed")
    if smallest is not None and largest is not None and smallest > largest:
        raise ValueError(
            f"{text!r}: MIN is larger than MAX; write {words[1]}:{words[0]}, or another MAX"
        )
    return smallest, largest


def percentiles(text: str) -> tuple[float, ...]:
    """Numbers of 0 to 100, separated by commas."""
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is no list of percentiles: write 50,90,99") from None
    for number in numbers:
        if not 0 <= number <= 100:
            raise ValueError(f"{number:g} is no percentile: it has to be from 0 to 100")
    return numbers


def quorum(text: str) -> int | str:
    """A number from 1, "all" or "majority"."""
    if text in ("all", "majority"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is no quorum: a number from 1, all or majority is needed")
    return int(text)


def names(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Some of `known`, separated by commas, each once; "none" for none of them."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in (*known, "none"):
            raise ValueError(f"unknown name {word!r}: choose from {', '.join(known)} or none")
    if "none" in words and len(words) > 1:
        raise ValueError(f"{text!r} is none and some: leave one of them out")
    return () if words == ("none",) else words
