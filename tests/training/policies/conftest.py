"""The clock that DropCompute sees is the test's."""

import pytest
from dropping import Clock

from wagma.training import clock as device_clock
from wagma.training.policies import dropcompute


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (device_clock, dropcompute):
        monkeypatch.setattr(module, "time", made)
    return made
