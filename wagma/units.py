"""Sizes, times and lists of numbers, as people write and read them. Pure.

A function that reads raises ValueError, which says what is wrong and what to write.
"""

import math
import re
from collections.abc import Sequence

LARGE_BYTES = 8192  # OSU's: a larger message has fewer iterations

_NUMBER = re.compile(r"([+-]?[0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)
_POWERS = tuple(enumerate("kmgt", 1))
_BYTES = {
    "": 1,
    "b": 1,
    **{unit: 1024**power for power, k in _POWERS for unit in (k, f"{k}ib")},
    **{f"{k}b": 1000**power for power, k in _POWERS},
}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MOST_SECONDS = 1e6
MOST_BYTES = 1 << 50  # more than one machine has
NONE = "\N{EN DASH}"  # where there is no value


def parse_size(text: str) -> int:
    """Return the bytes, 0 to 1 PiB, of a text such as 4096, 64KiB, 1.5GiB or 64k.

    KiB, MiB, GiB, TiB and K, M, G, T are powers of 1024; KB, MB, GB, TB are powers of 1000.
    """
    number, unit = _split(text)
    factor = _BYTES.get(unit)
    if number is None or factor is None:
        raise ValueError(f"{text!r} is no size: write bytes, such as 4096, 64KiB or 1MiB")
    value = number * factor
    if not value >= 0 or value != int(value):
        raise ValueError(f"{text!r} is no whole number of bytes from 0")
    if value > MOST_BYTES:
        raise ValueError(f"{text!r} is out of range: write at most {size_text(MOST_BYTES)}")
    return int(value)


def parse_seconds(text: str) -> float:
    """Return the seconds, 0 to 1e6, of a text such as 300ms, 50us or 1s; only 0 needs no unit."""
    number, unit = _split(text)
    if number is not None and not unit:
        if number == 0:
            return 0.0
        raise ValueError(f"{text!r} has no unit: write {text.strip()}ms or {text.strip()}s")
    factor = _SECONDS.get(unit)
    if number is None or factor is None:
        raise ValueError(f"{text!r} is no time: write 300ms, 50us or 1s")
    value = number * factor
    if not 0 <= value <= MOST_SECONDS:
        raise ValueError(f"{text!r} is no time from 0 to {MOST_SECONDS:g} s")
    return value


def parse_duration(text: str, most: float = MOST_SECONDS) -> float:
    """Return the seconds of a text for `parse_seconds`, more than 0 and at most `most`."""
    value = parse_seconds(text)
    if not 0 < value <= most:
        raise ValueError(f"{text!r} is out of range: write more than 0 and at most {most:g}s")
    return value


def parse_limit(text: str) -> int | None:
    """Return the seconds of a Slurm time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Return None for no limit, and for what is no time.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if not found:
        return None
    days, *rest = (None if one is None else int(one) for one in found.groups())
    numbers = [one for one in rest if one is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 3:
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    minutes, seconds = (*numbers, 0)[:2]
    return minutes * 60 + seconds


def _split(text: str) -> tuple[float | None, str]:
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        return None, ""
    try:
        number = float(found[1])
    except ValueError:
        return None, ""
    return (number, found[2].lower()) if math.isfinite(number) else (None, "")


def size_text(size: float) -> str:
    """Return bytes with four digits and a unit: '4 B', '16 KiB', '1.5 GiB'."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while size >= 1024 and power < len(units) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.4g} {units[power]}" if size < 1000 else f"{size:.0f} {units[power]}"


def time_text(seconds: float, *, zeros: bool = True) -> str:
    """Return seconds with three digits and a unit, or all whole ones: '1.23 s', '15.0 us'.

    Args:
        seconds: at least 0.
        zeros: keep those at the end of a fraction; '15 us' otherwise.
    """
    if seconds == 0:
        return "0 s"
    units = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))
    # 999.5 and more has more than three digits.
    unit, name = next((one for one in units if seconds < 999.5 * one[0]), units[-1])
    value = seconds / unit
    if name == "ns" or value >= 999.5:
        return f"{value:.0f} {name}"
    return f"{value:#.3g}".rstrip(".") + f" {name}" if zeros else f"{value:.3g} {name}"


def duration_text(seconds: float) -> str:
    """Return seconds as people say them: '1 d 4 h', '30 min', '90 s'."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    parts = []
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if whole >= unit:
            parts.append(f"{whole // unit} {name}")
            whole %= unit
    return " ".join(parts)


def percent_text(share: float | None) -> str:
    """Return a share of 1 in percent: '42.3%'; a dash where it is not known."""
    return NONE if share is None else f"{share:.1%}"


def number_text(value: float, digits: int = 3) -> str:
    """Return a number with `digits` digits, or all before the point: '1.50', '2,224'."""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:#.{digits}g}".rstrip(".")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: '1 rank', '2 ranks'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rank_list(ranks: Sequence[int]) -> str:
    """Return ascending ranks with their noun: 'rank 3', 'ranks 0-2, 5'."""
    return f"rank{'' if len(ranks) == 1 else 's'} {spans(ranks)}"


def spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers as runs: '0-2, 5'."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
