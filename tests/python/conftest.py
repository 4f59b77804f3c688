"""Tests of one process; a test that hangs is ended with the stacks of its threads."""

import gc
import os

import numpy as np
import pytest
import watchdog

pytest_configure = watchdog.keep_stderr
watched = watchdog.every_test()

# What tests have left behind must not be collected in forked ranks: the end of a process group of
# torch hangs there, where its threads are not.
os.register_at_fork(after_in_child=gc.freeze)


@pytest.fixture
def x() -> np.ndarray:
    """An array for `ranks.pair`."""
    return np.ones(3, np.float32)
