"""The header of a report: whether ranks have a core each, the transport, the command."""

import shlex
import sys
from typing import Any

import pytest

from wagma.benchmarks.environment import command_line, crowded_hosts, fullest
from wagma.benchmarks.settings import transport
from wagma.benchmarks.table import collect


def ranks(*cores: set[int], host: str = "a", limit: float | None = None) -> list[dict[str, Any]]:
    """Facts of ranks on one host that may run on these cores."""
    return [{"host": host, "cores": sorted(own), "cpu_limit": limit} for own in cores]


@pytest.mark.parametrize(
    "places",
    [
        ranks({0}, {1}, {2}),
        ranks({0, 1, 2}, {0, 1, 2}, {0, 1, 2}),
        ranks({0, 1}, {0, 1}, {2, 3}, {2, 3}),
        ranks({0}) + ranks({0}, host="b"),
        ranks({0}, {1}, limit=2.0),
    ],
)
def test_ranks_with_a_core_each(places: list[dict[str, Any]]) -> None:
    assert crowded_hosts(places) == []


@pytest.mark.parametrize(
    ("places", "why"),
    [
        (ranks({0, 1}, {0, 1}, {0, 1}), "a: 3 ranks share 2 cores: "),
        # There are as many cores as ranks, and yet two of these have one.
        (ranks({0}, {0}, {1, 2, 3}), "a: 2 ranks share 1 cores: "),
        (ranks({0, 1}, {1, 2}), "a: rank 0 may run on cores 0-1 and rank 1 on 1-2: "),
        (ranks({0}, {1}, {2}, limit=1.5), "a: 3 ranks have the time of 1.5 CPUs"),
        (ranks({0}, {1}) + ranks({0}, {0}, host="b"), "b: 2 ranks share 1 cores: "),
    ],
)
def test_ranks_that_take_cores_from_each_other(places: list[dict[str, Any]], why: str) -> None:
    (text,) = crowded_hosts(places)
    assert text.startswith(why)
    assert "bind them to cores of their own" in text


def test_the_fullest_host() -> None:
    assert fullest(ranks({0}, {1}) + ranks({0}, host="b")) == 2


@pytest.mark.parametrize(
    ("asked", "one_node", "used"),
    [
        ("auto", True, "shm"),
        ("auto", False, "mpi"),
        ("mpi", True, "mpi"),
        ("shm", False, "shm"),  # which is refused, and not changed
    ],
)
def test_which_transport_is_measured(asked: str, one_node: bool, used: str) -> None:
    assert transport(asked, one_node=one_node) == used


def test_the_command_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-m", "wagma", "bench", "allreduce", "-m", "8:8", "--samples", "my file.npz"]
    monkeypatch.setattr(sys, "orig_argv", ["/opt/a b/bin/python3", *words])
    assert command_line() == "python3 -m wagma bench allreduce -m 8:8 --samples 'my file.npz'"
    assert shlex.split(command_line()) == ["python3", *words]


def test_the_table_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "wagma", "bench", "table"])
    assert collect._environment()["command"] == "python -m wagma bench table"
