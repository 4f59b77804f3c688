"""Where no hosts can be made tests are skipped, but not where CI is set and namespaces are allowed.

These tests need nothing themselves.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crossing import CONTROL_BYTES, Crossed
from emulated import TOOLS, Traffic, namespaces_refused, taps_refused

pytestmark = [pytest.mark.hosts, pytest.mark.long]

TEST = "test_commands_get_their_arguments_and_their_folder_and_give_their_status"
RELAY_TEST = "test_a_link_carries_so_much_per_second"


def outcome(test: str, **environment: str) -> str:
    """What pytest says about a test that needs hosts."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", test, str(Path(__file__).parent)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_missing_program_is_named(tmp_path: Path, ci: str) -> None:
    for tool in {*TOOLS, "sh"} - {"ip"}:
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    said = outcome(TEST, PATH=str(tmp_path), CI=ci)
    assert "not installed: ip" in said
    fails = ci == "true" and namespaces_refused() is None
    assert ("1 error" in said, "1 skipped" in said) == (fails, not fails)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("ci", ["", "true"])
def test_a_missing_compiler_is_named(ci: str) -> None:
    said = outcome(RELAY_TEST, CC="none-such", CI=ci)
    assert "no C compiler: none-such" in said
    fails = ci == "true" and taps_refused() is None
    assert ("1 error" in said, "1 skipped" in said) == (fails, not fails)


@pytest.mark.parametrize("ci", ["", "true"])
def test_refused_namespaces_are_a_reason_to_skip(tmp_path: Path, ci: str) -> None:
    for tool in TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\necho no namespaces >&2\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    said = outcome(TEST, PATH=str(tmp_path), CI=ci)
    assert "1 skipped" in said
    assert "no namespaces" in said


def test_bytes_that_did_not_cross_are_missed() -> None:
    crossed = Crossed({"h1": Traffic(received=1000, sent=1000), "h2": Traffic(1000, 999)})
    crossed.check_at_least(999)
    with pytest.raises(AssertionError, match="h2 has received 1000 and sent 999 bytes: 1000 did"):
        crossed.check_at_least(1000)
    crossed.check_at_most(0)
    crossed.traffic["h1"] = Traffic(0, 1001 + CONTROL_BYTES)
    with pytest.raises(AssertionError, match="more than 1000"):
        crossed.check_at_most(1000)
