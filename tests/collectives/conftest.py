"""Fixtures for tests of collectives."""

import numpy as np
import pytest


@pytest.fixture
def x() -> np.ndarray:
    """An array for `ranks.pair`."""
    return np.ones(3, np.float32)
