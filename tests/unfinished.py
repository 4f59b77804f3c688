"""The test that a rank was in when it was ended, read from its log.

`pytest -v` writes the name of a test when it begins, and behind it how it ended. A rank that failed
in a test to whose end the others do not come says so in its log (`alone`): pytest would only later.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["alone", "describe"]

_BEGUN = re.compile(r"(tests/[^ :]+\.py::.+?)( (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*)?$")
_ENDED_BY_WATCHDOG = re.compile(r" ?Timeout \(.*\)!$")
_ALONE = re.compile(r"rank \d+ has failed, and others do not come: .*")
_LONGEST = 200  # characters of an error


def alone(rank: int, error: BaseException) -> str:
    """Return the line of a rank that has failed in a test to whose end others do not come."""
    first, *_ = str(error).splitlines() or [""]
    text = f"{type(error).__name__}: {first}"
    return f"rank {rank} has failed, and others do not come: {text[:_LONGEST]}"


def _last_words(lines: Iterable[str]) -> tuple[str, str]:
    """Return the test that began last, "" if it has ended, too, and the line of `alone` in it."""
    test = said = ""
    for line in lines:
        if found := _BEGUN.match(_ENDED_BY_WATCHDOG.sub("", line)):
            test, said = "" if found[2] else found[1].strip(), ""
        elif _ALONE.match(line):
            said = line
    return test, said


def describe(logs: Mapping[int, Sequence[str]]) -> list[str]:
    """Return in which tests ranks were ended, and who had failed there, from their logs by rank."""
    ranks: dict[str, list[str]] = {}
    failed = []
    for rank, lines in logs.items():
        test, said = _last_words(lines)
        if test:
            ranks.setdefault(test, []).append(str(rank))
            failed += [said] if said else []
    ended = [
        f"rank{'s' * (len(which) > 1)} {', '.join(which)} ended in {test}"
        for test, which in ranks.items()
    ]
    return ended + failed
