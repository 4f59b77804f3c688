"""Tests on emulated hosts (emulated.py); skipped, with the reason, where the machine makes none.

Where CI is set and namespaces can be made, whatever else is missing is an error; for tests over the
relay only where TAP devices can be made, too.
"""

import os

import pytest
from emulated import namespaces_refused, obstacle, relay_obstacle, taps_refused
from launchers import Launcher


@pytest.fixture(scope="session")
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture(scope="session")
def machine() -> None:
    """For tests that make hosts."""
    if reason := obstacle():
        if os.environ.get("CI") == "true" and namespaces_refused() is None:
            pytest.fail(f"namespaces can be made, but no hosts: {reason}", pytrace=False)
        pytest.skip(f"no emulated hosts: {reason}")


@pytest.fixture(scope="session")
def relay() -> None:
    """For tests whose hosts are joined by the relay, beside `machine`."""
    if reason := relay_obstacle():
        if os.environ.get("CI") == "true" and taps_refused() is None:
            pytest.fail(f"TAP devices can be made, but no relay: {reason}", pytrace=False)
        pytest.skip(f"no relay between emulated hosts: {reason}")
