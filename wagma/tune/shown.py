"""A bar on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

__all__ = ["bar"]


@contextmanager
def bar(points: int, shown: bool) -> Iterator[Callable[[], None]]:
    """Gives what is to be called after each of `points`."""
    if not shown or find_spec("rich") is None:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True, force_terminal=True), transient=True) as progress:
        task = progress.add_task("measuring", total=points)
        yield lambda: progress.advance(task)
