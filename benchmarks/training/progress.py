"""The live line of a training, on rank 0."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# Seconds between redraws: drawn by the training itself, so seldom.
PERIOD = 0.25


def console_of(first: bool, progress: bool) -> Console:
    """Return rank 0's console on standard error; other ranks (not `first`) say nothing there."""
    return Console(
        stderr=True,
        quiet=not first,
        force_terminal=progress or None,
        highlight=False,
        soft_wrap=True,
    )


@contextmanager
def progress_line(
    console: Console, label: str, steps: int, shown: bool
) -> Iterator[Callable[[int], None]]:
    """Give the function that is told how many of `steps` are done.

    `label` says what is being done; nothing is drawn unless `shown`.
    """
    if not shown:
        yield lambda _done: None
        return
    columns = (
        TextColumn("{task.description:<13}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, auto_refresh=False) as line:
        task = line.add_task(label, total=steps)
        drawn = time.perf_counter()

        def advance(done: int) -> None:
            nonlocal drawn
            now = time.perf_counter()
            if now - drawn >= PERIOD or done >= steps:
                drawn = now
                line.update(task, completed=done, refresh=True)

        yield advance
