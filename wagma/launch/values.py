"""Values of options as people write them: 64KiB, 300us, 4:1MiB, 50,90,99. Pure.

Each function reads one kind of value and raises ValueError, with what is wrong and what to write.
"""

import math
from collections.abc import Collection

from wagma.units import parse_size


def integer(text: str, lowest: int) -> int:
    """Parse a whole number from `lowest`."""
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number: at least {lowest} is needed") from None
    if number < lowest:
        raise ValueError(f"{number} is too small: at least {lowest} is needed")
    return number


def noise_scale(text: str) -> float:
    """Return a noise scale, in local batches: finite, 0 or more; raise ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is no noise scale: write a number of local batches, 0 or more")
    return value


def limits(text: str) -> tuple[int | None, int | None]:
    """Parse MIN:MAX, MAX, :MAX or MIN: into bytes; None: the limit is not given."""
    words = text.split(":")
    if len(words) > 2 or not any(words):
        raise ValueError(f"{text!r} is no range: write MIN:MAX, MAX or MIN:")
    smallest = size(words[0]) if len(words) == 2 and words[0] else None
    largest = size(words[-1]) if words[-1] else None
    check_order(smallest, largest, "MIN:MAX")
    return smallest, largest


def size(text: str) -> int:
    """Parse a size of at least one byte."""
    value = parse_size(text)
    if value == 0:
        raise ValueError(f"{text!r} has 0 bytes: at least one element is needed")
    return value


def check_order(smallest: int | None, largest: int | None, form: str) -> None:
    """Check that MIN is not above MAX; `form` is their form in messages.

    Raises:
        ValueError: MIN is above MAX.
    """
    if smallest is not None and largest is not None and smallest > largest:
        raise ValueError(f"MIN {smallest} is larger than MAX {largest}: write {form}")


def percentiles(text: str) -> tuple[float, ...]:
    """Parse numbers from 0 to 100, separated by commas."""
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is no list of percentiles: write 50,90,99") from None
    for number in numbers:
        if not 0 <= number <= 100:
            raise ValueError(f"{number:g} is no percentile: it has to be from 0 to 100")
    return numbers


def quorum(text: str) -> int | str:
    """Parse a number from 1, "all" or "majority"."""
    if text in ("all", "majority"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is no quorum: a number from 1, all or majority is needed")
    return int(text)


def names(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Parse names from `known`, separated by commas, without duplicates; "none": no name."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in (*known, "none"):
            raise ValueError(f"unknown name {word!r}: choose from {', '.join(known)} or none")
    if "none" in words and len(words) > 1:
        raise ValueError(f"{text!r} has none beside names: leave one of them out")
    return () if words == ("none",) else words
