"""The clock that DropCompute sees is the test's."""

import pytest
from dropping import Clock

from wagma.training.policies import draws, dropcompute, preemption


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (draws, dropcompute, preemption):
        monkeypatch.setattr(module, "time", made)
    return made
