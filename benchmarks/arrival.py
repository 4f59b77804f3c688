"""Patterns by which ranks arrive at a collective. Pure but for a trace, which is read.

A pattern tells how much later than the common start each rank arrives at each iteration. Its draws
are those of `wagma.inject`: they follow from the seed and are the same on every rank.

| pattern | rank r of P arrives |
|---|---|
| together | at once with all others |
| one-late:T[:RANK] | at once, but one rank after T: drawn anew in each iteration, or always RANK |
| ramp:T | after r/(P-1) T |
| uniform:T | after a time from 0 to T, drawn for each rank and iteration |
| lognormal[:T[:MEAN[:SIGMA[:CAP]]]] | after T min(eps, CAP), eps lognormal: DropCompute's |
| trace:FILE | as the file says, from its beginning again after its end |

T is 300ms, 50us, 1s or 0.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wagma.inject import Delays, Exponential, Heterogeneous, Lognormal, OneServer, Paper, Trace
from wagma.units import parse_seconds

FORMS = {
    "together": "together",
    "one-late": "one-late:T[:RANK]",
    "ramp": "ramp:T",
    "uniform": "uniform:T",
    "lognormal": "lognormal[:T[:MEAN[:SIGMA[:CAP]]]]",
    "trace": "trace:FILE",
}
_FIXED = ("together", "trace")  # patterns without T
LOGNORMAL_S = 1e-3  # the mean is half of it, and the latest rank comes after 5.5 times as much

SCALED = ", ".join(name for name in FORMS if name not in _FIXED)

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pattern:
    """A pattern as it was written."""

    text: str  # as it was written
    name: str  # one of FORMS
    # T, in seconds; None: it has none, or leaves it to the caller of `offsets`
    amplitude: float | None = None
    rank: int | None = None  # of one-late, the late one; None: drawn anew in each iteration
    shape: tuple[float, ...] = ()  # of lognormal: MEAN, SIGMA and CAP, as many as were given
    path: str | None = None  # of trace

    @property
    def has_amplitude(self) -> bool:
        """Return whether it has a T."""
        return self.name not in _FIXED


def parse(text: str) -> Pattern:
    """Read a pattern; T may be left out, for the caller of `offsets` to give.

    Raises:
        ValueError: it is none; the message names what is wrong and the forms.
    """
    name, colon, rest = text.strip().partition(":")
    if name not in FORMS:
        raise ValueError(f"unknown pattern {name!r}: choose from {', '.join(FORMS.values())}")
    try:
        return _parse(text.strip(), name, rest, bool(colon))
    except ValueError as error:
        raise ValueError(f"{text}: {error}; the form is {FORMS[name]}") from None


def _parse(text: str, name: str, rest: str, colon: bool) -> Pattern:
    if name == "trace":
        if not rest:
            raise ValueError("the file is missing")
        return Pattern(text, name, path=rest)
    words = rest.split(":") if colon else []
    if len(words) > {"together": 0, "one-late": 2, "lognormal": 4}.get(name, 1):
        raise ValueError(f"{words[-1]!r} is too much")
    amplitude = parse_seconds(words[0]) if words else None
    rank: int | None = None
    shape: tuple[float, ...] = ()
    if name == "one-late" and len(words) > 1:
        rank = _rank(words[1])
    if name == "lognormal":
        amplitude = LOGNORMAL_S if amplitude is None else amplitude
        shape = tuple(_number(word) for word in words[1:])
        Lognormal(1, amplitude, *shape)  # checks them
    return Pattern(text, name, amplitude, rank, shape)


def _rank(word: str) -> int:
    if not word.isdecimal():
        raise ValueError(f"{word!r} is no rank: a number from 0 is needed")
    return int(word)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word!r} is no number") from None


def offsets(
    pattern: Pattern,
    ranks: int,
    iterations: int,
    seed: int,
    amplitude: float | None = None,
    first: int = 0,
) -> Offsets:
    """Return when each rank arrives at each iteration, after the common start.

    Args:
        pattern: see `parse`.
        ranks: P.
        iterations: how many.
        seed: of the draws, >= 0.
        amplitude: in seconds, in place of the pattern's T.
        first: which of the pattern's iterations comes first.

    Returns:
        int64 [iterations, P], ns from 0; the same for the same arguments.

    Raises:
        ValueError: T is missing, or there is none in this pattern; it is not for P ranks; the file
            is no trace, and the message names file and line.
        OSError: the file cannot be read.
    """
    if amplitude is not None and not pattern.has_amplitude:
        raise ValueError(f"{pattern.text} has no T: choose from {SCALED}")
    time = pattern.amplitude if amplitude is None else amplitude
    if time is None and pattern.has_amplitude:
        raise ValueError(f"{pattern.text}: T is missing; the form is {FORMS[pattern.name]}")
    if pattern.name == "together":
        return np.zeros((iterations, ranks), np.int64)
    if pattern.name == "uniform":
        # 1 - exp(-x) of an exponential x is uniform.
        unit = Exponential(ranks, 1.0, seed=seed).table(iterations, first)
        table = -np.expm1(-unit) * (time or 0.0)
    else:
        table = _delays(pattern, ranks, seed, time or 0.0).table(iterations, first)
    return np.rint(1e9 * table).astype(np.int64)


def _delays(pattern: Pattern, ranks: int, seed: int, time: float) -> Delays:
    if pattern.name == "trace":
        return Trace(ranks, str(pattern.path))
    if pattern.name == "ramp":
        return Heterogeneous(ranks, time, tuple(np.linspace(0, 1, ranks)))
    if pattern.name == "lognormal":
        return Lognormal(ranks, time, *pattern.shape, seed=seed)
    if pattern.rank is not None:
        return OneServer(ranks, pattern.rank, time)
    return Paper(ranks, 1, time, seed=seed)
