"""Waits while a collective is made: which options govern them, and how often they speak."""

import logging
import math
import re
import time
from typing import Any

import pytest

from wagma.collectives import StallError
from wagma.collectives.rendezvous.patience import Patience, Wait


def test_options_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Patience.of({"timeout": None, "late": "skip"}) == (math.inf, 60.0, None)
    assert Patience.of({"timeout": 0, "stall_warning": None, "name": "x"}) == (0, math.inf, "x")
    monkeypatch.setenv("WAGMA_STALL_WARNING", "2.5")
    assert Patience.of({"stall_warning": 7}).stall_warning == 2.5


@pytest.mark.parametrize(
    "options",
    [{"timeout": -1}, {"timeout": math.nan}, {"timeout": "soon"}, {"stall_warning": -0.5}],
)
def test_what_makes_no_sense_is_left_to_the_meeting(options: dict[str, Any]) -> None:
    assert Patience.of(options) == Patience()


def test_an_environment_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAGMA_STALL_WARNING", "-1")
    assert Patience.of({}) == Patience()


@pytest.mark.parametrize(
    ("stall_warning", "warnings"), [(0, 9), (0.1, 9), (0.25, 3), (math.inf, 0)]
)
def test_warnings(
    stall_warning: float,
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not at every look at the clock, which is here every 1/64 s for a second."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    wait = Wait(Patience(timeout=1, stall_warning=stall_warning), rank=2)
    with caplog.at_level(logging.WARNING, "wagma"):
        for tick in range(64):
            now = tick / 64
            wait.check((0, 1))
    assert len(caplog.records) == warnings
    said = r"rank 2 has waited [01]\.\d s in the creation for ranks 0-1, which have not come"
    assert all(re.match(f"{said}: ", text) for text in caplog.messages)
    now = 1.0
    with pytest.raises(StallError, match=rf"^{said} \(timeout 1 s\): "):
        wait.check((0, 1))


def test_stops_are_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is suspended twice while a rank waits for a second of its own time."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    wait = Wait(Patience(timeout=1), rank=0)
    for tick in range(50):
        now += 100.0 if tick in (20, 40) else 1 / 64
        wait.check((1,))
    assert wait.seconds == pytest.approx(48 / 64, abs=0.11)
    with pytest.raises(StallError, match=r"has waited 1\.0 s"):
        for _ in range(16):
            now += 1 / 64
            wait.check((1,))
