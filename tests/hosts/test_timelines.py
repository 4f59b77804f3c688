"""Timelines of ranks on hosts whose clocks are a day and more apart, put on one clock."""

import json
import sys
from pathlib import Path

import pytest
from emulated import Hosts
from launchers import Launcher

from wagma.trace.clocks import align
from wagma.trace.files import check_one_run, find, read
from wagma.trace.merge import merge

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.usefixtures("machine")]

PROGRAM = str(Path(__file__).with_name("traced.py"))
DAY_NS = 86_400 * 10**9
SLACK_NS = 5_000_000  # between looks at the date and at the clock, on a busy machine


def test_clocks_are_compared_by_messages(launcher: Launcher, tmp_path: Path) -> None:
    with Hosts(2) as hosts:
        done = launcher.run(hosts, [sys.executable, PROGRAM, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    timelines = [read(path) for path in find([tmp_path])]
    check_one_run(timelines)
    assert [timeline.host for timeline in timelines] == ["h1", "h2"]
    apart = timelines[1].clock.to_rank_0_ns
    assert apart is not None and abs(apart) > DAY_NS
    error = align(timelines)[timelines[1].clock.key].error_ns
    assert error is not None and 0 < error < DAY_NS // 86_400

    # When each contribution came, on the common clock; the dates say between which moments.
    came = {
        event["pid"]: round(event["ts"] * 1000)
        for event in merge(timelines)["traceEvents"]
        if event.get("cat") == "arrival" and event["args"]["version"] == said["version"]
    }
    (began_0, ended_0), (began_1, ended_1) = said["dates"]
    allowed = error + SLACK_NS
    assert began_1 - ended_0 - allowed <= came[1] - came[0] <= ended_1 - began_0 + allowed
