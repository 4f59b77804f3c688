"""Collectives across hosts: messages between nodes, memory within one, and the right sums."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import versioned
from crossing import CONTROL_BYTES, Crossed, counted
from emulated import Hosts, Link
from launchers import Launcher

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.usefixtures("machine")]

PROGRAM = str(Path(__file__).with_name("averaging.py"))
ELEMENTS = 1 << 18
STEPS = 6
PAYLOAD = 4 * ELEMENTS * (STEPS + 1)  # bytes of the sums that a rank gets


def average(
    launcher: Launcher,
    hosts: Hosts,
    per_host: int,
    *,
    names: list[str] | None = None,
    steps: int = STEPS,
    noise: int = ELEMENTS,
    pause: float = 0.0,
    **options: Any,
) -> tuple[dict[str, Any], Crossed]:
    """What rank 0 has printed, and what crossed."""
    settings = {"options": options, "steps": steps, "noise": noise, "pause": pause}
    program = [sys.executable, PROGRAM, json.dumps(settings)]
    with counted(hosts) as crossed:
        done = launcher.run(hosts, program, per_host=per_host, names=names)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), crossed


@pytest.mark.parametrize(("transport", "per_host"), [("auto", 1), ("mpi", 2)])
def test_sums_cross_between_nodes(launcher: Launcher, transport: str, per_host: int) -> None:
    with Hosts(2) as hosts:
        options = {"quorum": "all", "transport": transport}
        seen, crossed = average(launcher, hosts, per_host, **options)
    ranks = 2 * per_host
    assert seen["transports"] == ["mpi"] * ranks
    assert seen["calls"] == ranks * (STEPS + 1)
    assert seen["late"] == 0
    crossed.check_at_least(PAYLOAD)
    crossed.check_at_most(3 * ranks * PAYLOAD)


def test_sums_on_one_host_stay_in_its_memory(launcher: Launcher) -> None:
    with Hosts(2) as hosts:
        seen, crossed = average(launcher, hosts, 2, names=["h2"])
    assert seen["transports"] == ["shm"] * 2
    crossed.check_at_most(0)


def test_memory_cannot_be_shared_between_hosts(launcher: Launcher) -> None:
    with Hosts(2) as hosts:
        seen, crossed = average(launcher, hosts, 2, transport="shm")
    refused = seen["refused"]
    assert refused == refused[:1] * 4
    assert refused[0].startswith("transport='shm', but the communicator's 4 ranks are on several")
    assert "at most 2 on each: leave transport (WAGMA_TRANSPORT) at 'auto'" in refused[0]
    crossed.check_at_most(0)


# Groups across hosts and within one, late ranks, and what each of them was given.
WAIT_AVOIDING: dict[str, tuple[int, int, dict[str, Any]]] = {
    "2x1": (2, 1, {"grace": 0.0, "sync_period": 8}),
    "2x2": (2, 2, {"group_size": 2, "grace": 0.0, "sync_period": 8}),
    "3x1": (3, 1, {"group_size": 2, "sync_period": 10}),
    "4x1": (4, 1, {"quorum": 3, "grace": 0.0}),
}


LATE_STEPS = 40
LATE_NOISE = 10_000


def crossings(plan: versioned.Plan, per_host: int) -> int:
    """Versions, all of which have a sum, for which each host has to hear of another, at least."""

    def crosses(host: int, version: int) -> bool:
        ranks = range(host * per_host, (host + 1) * per_host)
        groups = (plan.group(rank, version, plan.is_sync(version)) for rank in ranks)
        return any(member not in ranks for group in groups for member in group)

    versions = range(LATE_STEPS)
    hosts = range(plan.size // per_host)
    return min(sum(crosses(host, version) for version in versions) for host in hosts)


@pytest.mark.parametrize(
    ("shape", "network"), [("2x1", "slow"), ("2x2", "slow"), ("3x1", "bridge"), ("4x1", "slow")]
)
def test_late_ranks(
    launcher: Launcher, shape: str, network: str, request: pytest.FixtureRequest
) -> None:
    """Also when every message takes a millisecond, and TCP has to mend what is lost."""
    if network == "slow":
        request.getfixturevalue("relay")
    link = Link(delay_us=1000, loss=0.005) if network == "slow" else None
    count, per_host, options = WAIT_AVOIDING[shape]
    with Hosts(count, link=link) as hosts:
        seen, crossed = average(
            launcher,
            hosts,
            per_host,
            steps=LATE_STEPS,
            noise=LATE_NOISE,
            pause=0.01,
            timeout=60.0,
            **options,
        )
    size = count * per_host
    assert seen["transports"] == ["mpi"] * size
    assert seen["calls"] == (LATE_STEPS + 1) * size
    assert seen["late"] > 0
    plan = versioned.Plan(
        size, options.get("group_size", size), 1, sync_period=options.get("sync_period")
    )
    payload = 4 * LATE_NOISE * crossings(plan, per_host)
    assert payload > CONTROL_BYTES  # which the launcher could have moved
    crossed.check_at_least(payload)
