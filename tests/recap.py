"""Print what failed at the end of a long output, where it is found although the middle is cut.

    python3 tests/recap.py LOG...

Tests that failed have a line in the summary of pytest, in the output of a C test, or in that of
tests/run.py. A log without such lines is represented by its last ones.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["failures", "of_log"]

_FAILED = re.compile(r"\s*((FAILED|ERROR) \S.*)")  # of a logger's ERROR more spaces follow
_LONGEST = 300  # characters of a line
_MOST = 60  # lines of a log
_LAST = 10


def failures(lines: Iterable[str]) -> list[str]:
    """Return the lines that name a test that failed, each once."""
    found = (match[1][:_LONGEST] for line in lines if (match := _FAILED.match(line)))
    return list(dict.fromkeys(found))


def of_log(lines: list[str]) -> list[str]:
    """Return the lines that tell why a part of .ci/run failed."""
    found = failures(lines)
    if len(found) > _MOST:
        return [*found[:_MOST], f"... and {len(found) - _MOST} more"]
    return found or [line[:_LONGEST] for line in lines[-_LAST:]]


def main() -> None:
    """Print the lines of each log."""
    for log in map(Path, sys.argv[1:]):
        lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(no output)"]
        print(*(f"   {line}" for line in of_log(lines)), sep="\n")


if __name__ == "__main__":
    main()
