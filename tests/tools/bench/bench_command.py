"""Starts `python -m wagma bench` as users do."""

import os
import re
import subprocess
import sys

import pytest
from under_mpiexec import complete, in_turn, launcher

Ended = dict[str, subprocess.CompletedProcess[str]]

COMMAND = [sys.executable, "-m", "wagma", "bench"]
FEW = ("-i", "20", "-x", "5")


def command(ranks: int, *options: str) -> list[str]:
    """The command line on that many ranks, 0: without a launcher."""
    return [*([*launcher(), "-n", str(ranks)] if ranks else []), *COMMAND, *options]


def bench(
    ranks: int, *options: str, cores: set[int] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end; `cores`: the only ones that it may use."""
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores or usable)
        return complete(command(ranks, *options))
    finally:
        os.sched_setaffinity(0, usable)


def one_after_the_other(
    folders: pytest.TempPathFactory, options: dict[str, tuple[str, ...]]
) -> Ended:
    """Runs it on two ranks with each of the options, to their ends."""
    lines = [[["bench", *words]] * 2 for words in options.values()]
    return dict(zip(options, in_turn(folders.mktemp("bench"), lines), strict=True))


def rows(text: str) -> dict[int, list[str]]:
    """Cells of OSU's table by size, as those read it who parse OSU's output."""
    lines = re.findall(r"^(\d+)\s+(\S.*)$", text, re.MULTILINE)
    return {int(size): cells.split() for size, cells in lines}
