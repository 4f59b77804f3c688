"""Tests of one process; a test that hangs is ended with the stacks of its threads."""

import numpy as np
import pytest
import watchdog

pytest_configure = watchdog.keep_stderr
watched = watchdog.every_test()


@pytest.fixture
def x() -> np.ndarray:
    """An array for `ranks.pair`."""
    return np.ones(3, np.float32)
