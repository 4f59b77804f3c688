"""The algorithms that a training benchmark compares: what their names make."""

from typing import Any

import pytest
from mpi4py import MPI
from test_measured import RANKS, run, settings

import wagma
from wagma.benchmarks.training.algorithms import check_name, find
from wagma.inject import parse

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("name", "label", "overlap", "group_size"),
    [
        ("diloco-overlap10", "DiLoCo(10), overlap", True, None),
        ("diloco-groups10", "DiLoCo(10), groups", False, 2),
    ],
)
def test_diloco_that_does_not_wait(
    name: str, label: str, overlap: bool, group_size: int | None
) -> None:
    """Each makes what its name says, and its bound is unknown."""
    one = find(check_name(name), settings(group_size=2), RANKS)
    made = one.make(MPI.COMM_SELF, settings(), parse("none", 1))
    assert isinstance(made, wagma.DiLoCo)
    assert (made.sync_period, made.overlap, made.group_size) == (10, overlap, group_size)
    assert run(name)["label"] == one.label == label
    assert run(name)["ideal_seconds"] is None


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [
        ("ksync1", wagma.KSync, "K-sync, K=1"),
        ("kasync1", wagma.KAsync, "K-async, K=1"),
        ("fastest-k", wagma.FastestK, "fastest-k"),
    ],
)
def test_those_that_wait_for_k_gradients(name: str, kind: Any, label: str) -> None:
    one = find(check_name(name), settings(), RANKS)
    made = one.make(MPI.COMM_SELF, settings(), parse("none", 1))
    assert type(made) is kind
    assert one.label == label
    assert one.rule is None, "its bound is unknown, as the help and the page say"


@pytest.mark.parametrize("method", ["k-sync", "k-async", "k-batch-sync", "k-batch-async"])
def test_those_with_a_server_need_one_rank_more(method: str) -> None:
    one = find(check_name(f"{method}3"), settings(), 4)
    assert (one.home, one.options) == ("ParameterServerSGD", {"method": method, "k": 3})
    assert one.least_ranks == 4
    assert one.rule is None


def test_a_k_of_nothing_is_no_name() -> None:
    with pytest.raises(ValueError, match="ksyncN and kasyncN with N from 1 to P, "):
        check_name("ksync0")
