"""Tests of one process; a test that hangs is ended with the stacks of its threads."""

from collections.abc import Iterator

import numpy as np
import pytest
import watchdog


def pytest_configure() -> None:
    watchdog.keep_stderr()


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    with watchdog.watched():
        yield


@pytest.fixture
def x() -> np.ndarray:
    """An array for `ranks.pair`."""
    return np.ones(3, np.float32)
