"""Ranks in containers of their own that share /dev/shm: each is process 1 of its PID namespace."""

import subprocess
from pathlib import Path

import pytest
from launched import Launched

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child")


def refusal() -> str:
    """Why containers cannot be made here; empty: they can."""
    try:
        made = subprocess.run([*CONTAINER, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return made.stderr.strip() if made.returncode else ""


class Contained(Launched):
    """Ranks that are process 1."""

    command = CONTAINER


@pytest.mark.skipif(bool(refusal()), reason=f"no PID namespaces: {refusal()}")
def test_a_rank_that_dies() -> None:
    script = """
        assert os.getpid() == 1
        x = np.ones(30_000, np.float32)
        coll = PartialAllreduce(None, x)
        for _ in range(10):
            coll.allreduce(x)
        assert coll.stats().direct == 0
        if rank == 1:
            os._exit(0)
        attempt(lambda: coll.allreduce(x))
    """
    before = set(Path("/dev/shm").glob("wagma-*"))
    with Contained(2, script) as ranks:
        assert "PeerError: rank 1 is dead" in ranks.processes[0].communicate(timeout=60)[0]
    assert set(Path("/dev/shm").glob("wagma-1-*")) <= before
