"""A progress bar on standard error, for runs without other output."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def progress(points: int, *, shown: bool, rows: bool) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each point.

    Args:
        points: number of points.
        shown: show a bar on this rank, if standard error is a terminal and rich is installed.
        rows: points are printed one by one, so that a terminal on standard output needs no bar.
    """
    visible = shown and sys.stderr.isatty() and not (rows and sys.stdout.isatty())
    with bar(points, visible=visible) as advance:
        yield advance


@contextmanager
def bar(points: int, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each point; `visible`: show a bar if rich is installed."""
    if not visible or find_spec("rich") is None:
        yield _do_nothing
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, force_terminal=True)
    with Progress(console=console, redirect_stdout=False, transient=True) as shown:
        task = shown.add_task("measuring", total=points)
        yield lambda: shown.advance(task)


def _do_nothing() -> None:
    """Advance no bar."""
