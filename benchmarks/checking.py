"""Compares results with what they should hold, and counts what is wrong."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .contributions import Contributions, Vector
from .samples import Checks

COPIED_BYTES = 1 << 16  # above, copying a result takes long beside reducing it

Holds = list[tuple[int, int]]  # (rank, version) of each contribution


def taken(outcome: Any, rank: int) -> Holds:
    """Return whose contributions a call's array holds (average=False, late="stale")."""
    if not outcome.merged:
        return [(rank, outcome.version)]
    holds = list(zip(outcome.contributors, outcome.versions, strict=True))
    if outcome.late:
        holds.append((rank, outcome.version))
    return holds


class Contributed:
    """Contributions that one rank's array consists of; with late="carry", also earlier versions."""

    def __init__(self, ranks: int) -> None:
        self._missed: list[list[int]] = [[] for _ in range(ranks)]

    def expand(self, holds: Holds, version: int) -> Holds:
        """Return `holds` of `version`, with what those contributions carry."""
        more = [(r, m) for r, v in holds if v == version for m in self._missed[r]]
        return holds + more

    def note(self, version: int, late: Iterable[bool]) -> None:
        """Note which ranks came late to `version`."""
        for missed, is_late in zip(self._missed, late, strict=True):
            if is_late:
                missed.append(version)
            else:
                missed.clear()


@dataclass
class Checked:
    """Counts results, wrong ones and late ones; not thread-safe."""

    rank: int  # that checks
    contributions: Contributions  # of all ranks
    spoil: int | None = None  # number of the result to falsify, from 0; None: none
    results: int = 0
    wrong: int = 0
    late: int = 0
    first_wrong: str | None = None

    def check(
        self, what: str, x: Vector, holds: Sequence[tuple[int, int]], late: bool = False
    ) -> None:
        """Compare `x` with the sum of what it should hold, by (rank, version)."""
        if self.results == self.spoil and x.size > 0:
            x = x.copy()  # it may be read-only, or be looked at by others
            x[x.size // 2] = 0  # contributions are positive
        elements = self.contributions.wrong(x, holds)
        if elements:
            self.fail(
                what,
                self.results,
                f"{elements} of {x.size} elements are not the sum of (rank, version) {list(holds)}",
            )
        self.results += 1
        self.late += late

    def compare(
        self,
        what: str,
        x: Vector | None,
        holds: Sequence[tuple[int, int]],
        late: bool,
        wrong: str | None,
    ) -> bool:
        """Check a call's result `x` (None: none); `wrong` names a fault that was found already.

        Returns:
            Whether it is right.
        """
        before = self.wrong
        if wrong is None and x is None:
            wrong = "the call gave no result"
        if wrong is not None:
            self.fail(what, self.results, wrong)
            self.results += 1
            self.late += late
        elif x is not None:
            self.check(what, x, holds, late)
        return self.wrong == before

    def fail(self, what: str, number: int, text: str) -> None:
        """Count result `number` as wrong; keep the text of the first one."""
        self.wrong += 1
        if self.first_wrong is None:
            self.first_wrong = f"{what}, rank {self.rank}, result {number}: {text}"

    def checks(self) -> Checks:
        """Return what this rank found."""
        return Checks(self.results, self.wrong, self.first_wrong)

    def counts(self) -> dict[str, Any]:
        """Return the counts for the report."""
        return {
            "results": self.results,
            "wrong": self.wrong,
            "late": self.late,
            "first_wrong": self.first_wrong,
        }


def merge(checks: Iterable[Checks]) -> Checks:
    """Return what several ranks found."""
    checks = list(checks)
    firsts = (one.first_wrong for one in checks if one.first_wrong is not None)
    return Checks(
        sum(one.results for one in checks), sum(one.wrong for one in checks), next(firsts, None)
    )
