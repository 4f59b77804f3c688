"""Check what an MPI sees of emulated hosts, and what crosses the network between them."""

import json
import sys
from pathlib import Path

import pytest
from crossing import Crossed, counted
from emulated import Hosts, Link
from launchers import Launcher

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.usefixtures("machine")]

PROGRAM = str(Path(__file__).with_name("exchange.py"))
ELEMENTS, REPETITIONS = 1 << 18, 8
PAYLOAD = 8 * ELEMENTS * REPETITIONS  # bytes of the sums that a rank gets


def exchange(
    launcher: Launcher,
    hosts: Hosts,
    per_host: int,
    *,
    names: list[str] | None = None,
    repetitions: int = REPETITIONS,
    env: dict[str, str] | None = None,
) -> tuple[list[list[object]], Crossed]:
    """Where every rank was, and what crossed."""
    program = [sys.executable, PROGRAM, str(ELEMENTS), str(repetitions)]
    with counted(hosts) as crossed:
        done = launcher.run(hosts, program, per_host=per_host, names=names, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), crossed


@pytest.mark.parametrize(("count", "per_host"), [(2, 2), (3, 1), (4, 2)])
def test_ranks_of_a_host_are_a_node(launcher: Launcher, count: int, per_host: int) -> None:
    with Hosts(count) as hosts:
        places, _ = exchange(launcher, hosts, per_host, repetitions=1)
        assert places == [[name, per_host] for name in hosts.names for _ in range(per_host)]


@pytest.mark.parametrize("per_host", [1, 2])
def test_sums_cross_the_network(launcher: Launcher, per_host: int) -> None:
    with Hosts(2) as hosts:
        _, crossed = exchange(launcher, hosts, per_host)
    crossed.check_at_least(PAYLOAD)
    crossed.check_at_most(3 * PAYLOAD)


def test_sums_on_one_host_do_not_cross(launcher: Launcher) -> None:
    with Hosts(2) as hosts:
        places, crossed = exchange(launcher, hosts, 2, names=["h2"])
    assert places == [["h2", 2]] * 2
    crossed.check_at_most(0)
    with pytest.raises(AssertionError, match="did not cross the network"):
        crossed.check_at_least(PAYLOAD)


def test_shared_memory_between_hosts_is_found_out(launcher: Launcher) -> None:
    """MPICH sees two nodes, but its transport takes the memory that they share in truth."""
    if launcher.name != "mpich":
        pytest.skip("Open MPI takes shared memory only within what it sees as a node")
    with Hosts(2, shared_memory=True) as hosts:
        places, crossed = exchange(launcher, hosts, 1)
        assert places == [["h1", 1], ["h2", 1]]
        with pytest.raises(AssertionError, match="did not cross the network"):
            crossed.check_at_least(PAYLOAD)
        _, crossed = exchange(launcher, hosts, 1, env={"UCX_TLS": "tcp,self"})
        crossed.check_at_least(PAYLOAD)


@pytest.mark.usefixtures("relay")
@pytest.mark.parametrize("per_host", [1, 2])
def test_sums_over_a_slow_network_that_loses_frames(launcher: Launcher, per_host: int) -> None:
    with Hosts(2, link=Link(delay_us=1000, loss=0.005)) as hosts:
        _, crossed = exchange(launcher, hosts, per_host)
    crossed.check_at_least(PAYLOAD)
