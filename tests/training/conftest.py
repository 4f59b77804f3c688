"""Tests of the training benchmark; one that hangs is ended with the stacks of its threads."""

from collections.abc import Iterator

import pytest
import watchdog

WATCHDOG_S = 240.0  # all algorithms on eight ranks, on a busy machine


def pytest_configure() -> None:
    watchdog.keep_stderr()


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    with watchdog.watched(WATCHDOG_S):
        yield
