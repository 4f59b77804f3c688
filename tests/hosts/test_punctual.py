"""Time the calls of ranks that are never late, across hosts with a round trip of 2 ms."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from emulated import Hosts, Link
from launchers import Launcher

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.long,
    pytest.mark.usefixtures("machine", "relay"),
    pytest.mark.alone,
]

PROGRAM = str(Path(__file__).with_name("punctual.py"))
DELAY_US = 1000  # of a message
STEPS = 25
TICK_S, LATENESS_S = 0.15, 0.1


def calls(launcher: Launcher, lateness: float, **options: Any) -> list[tuple[float, float]]:
    """Return each rank's median time of a call and its share of late ones, on three hosts."""
    settings = {"steps": STEPS, "tick": TICK_S, "lateness": lateness, "options": options}
    with Hosts(3, link=Link(delay_us=DELAY_US)) as hosts:
        done = launcher.run(hosts, [sys.executable, PROGRAM, json.dumps(settings)])
    assert done.returncode == 0, done.stderr
    return [(took, late) for took, late in json.loads(done.stdout)]


def test_they_wait_for_messages_and_not_for_the_late(launcher: Launcher) -> None:
    *punctual, (_, late) = calls(launcher, LATENESS_S, quorum=1)
    assert late > 0.5
    for took, made_late in punctual:
        assert took < LATENESS_S / 2
        assert made_late < 0.5  # by the time that messages take


def test_where_all_are_needed_they_do_wait(launcher: Launcher) -> None:
    """Show with the same clock that the other test could fail."""
    *punctual, (_, late) = calls(launcher, LATENESS_S, quorum="all")
    assert late == 0
    for took, _ in punctual:
        assert took >= LATENESS_S / 2
