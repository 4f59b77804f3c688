"""Some of the tests that every rank runs (marked `mpi`), on ranks of several hosts."""

import sys
from pathlib import Path

import pytest
from crossing import counted
from emulated import Hosts
from launchers import Launcher

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.usefixtures("machine")]

TESTS = Path(__file__).resolve().parents[1]
LOGS = TESTS.parent / "build/test-logs"

LARGEST = 1048577  # elements of float32 that one of the tests sums over all ranks

# Hosts and ranks on each, and which tests. Four ranks that poll two cores take their time over
# sockets: they run those that depend on how many there are. (eager_solo wants a rank to fall two
# versions behind, which it need not where every version takes the time of messages.)
ALLREDUCE, METHODS = "tests/collectives/test_allreduce.py", "tests/collectives/test_methods.py"
SHAPES = {
    "2x1": (2, 1, (ALLREDUCE, METHODS, "-k", "not eager_solo")),
    "2x2": (2, 2, (ALLREDUCE, "-k", f"wait_avoiding or leave or {LARGEST}")),
    "4x1": (4, 1, (ALLREDUCE, "-k", f"quorum_all or fails or {LARGEST}")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_on_every_rank(launcher: Launcher, shape: str) -> None:
    count, per_host, chosen = SHAPES[shape]
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"hosts-{shape}"
    of_rank_0 = log.with_suffix(".0.log")
    of_rank_0.write_text("rank 0 did not start\n")
    options = ["-v", "--with-mpi", "--transport", "mpi", *chosen]
    program = [sys.executable, "tests/mpi_rank.py", str(log), *options]
    with Hosts(count) as hosts, counted(hosts) as crossed:
        done = launcher.run(hosts, program, per_host=per_host, timeout=240)
    said = of_rank_0.read_text()
    assert done.returncode == 0, said + done.stderr
    assert " passed" in said
    crossed.check_at_least(4 * LARGEST)
