"""Check which transport ranks take that MPICH puts on two nodes; needs no hosts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import Launcher, environment

pytestmark = pytest.mark.hosts

PROGRAM = str(Path(__file__).with_name("averaging.py"))


def average(launcher: Launcher, ranks: int, cliques: int, **options: object) -> dict[str, object]:
    if launcher.name != "mpich":
        pytest.skip("only MPICH can be told to see several nodes in one")
    settings = {"options": {"quorum": "all", **options}, "steps": 3, "noise": 37, "pause": 0.0}
    done = subprocess.run(
        [*launcher.words, "-n", str(ranks), sys.executable, PROGRAM, json.dumps(settings)],
        env=environment({"MPIR_CVAR_NUM_CLIQUES": str(cliques)}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("cliques", "transport"), [(1, "shm"), (2, "mpi")])
def test_auto_goes_by_the_nodes(launcher: Launcher, cliques: int, transport: str) -> None:
    seen = average(launcher, 4, cliques)
    assert seen["transports"] == [transport] * 4
    assert seen["calls"] == 16


def test_messages_can_be_asked_for_on_one_node(launcher: Launcher) -> None:
    assert average(launcher, 2, 1, transport="mpi")["transports"] == ["mpi"] * 2


def test_memory_of_two_nodes_is_refused_on_every_rank(launcher: Launcher) -> None:
    refused = average(launcher, 4, 2, transport="shm")["refused"]
    assert isinstance(refused, list)
    assert len(refused) == 4
    for text in refused:
        assert text.startswith("transport='shm', but the communicator's 4 ranks are on several")
        assert "at most 2 on each" in text
        assert "comm.Split_type(MPI.COMM_TYPE_SHARED)" in text


def test_uneven_nodes_are_several(launcher: Launcher) -> None:
    """Every rank sees another number of neighbours, and all decide alike."""
    assert average(launcher, 3, 2)["transports"] == ["mpi"] * 3
