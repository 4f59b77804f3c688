"""The classes of the methods: which arguments they choose, and which they take."""

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.collectives import (
    GroupAllreduce,
    MajorityAllreduce,
    Options,
    PartialAllreduce,
    QuorumAllreduce,
    SoloAllreduce,
    SyncAllreduce,
)

pytestmark = pytest.mark.mpi


def test_classes_are_choices_of_arguments(comm: MPI.Intracomm) -> None:
    x = np.ones(3, np.float32)
    chosen: list[tuple[type[PartialAllreduce], dict[str, Any], dict[str, Any]]] = [
        (GroupAllreduce, {"group_size": 1}, {"group_size": 1, "quorum": 1, "window": 64}),
        (SoloAllreduce, {}, {"quorum": 1, "late": "carry", "window": 8}),
        (SoloAllreduce, {"late": "skip"}, {"quorum": 1, "late": "skip", "window": 8}),
        (MajorityAllreduce, {"seed": 4}, {"quorum": "majority", "late": "carry", "seed": 4}),
        (QuorumAllreduce, {"k": 1, "window": 3}, {"quorum": 1, "late": "skip", "window": 3}),
        (QuorumAllreduce, {"k": 1, "late": "stale"}, {"quorum": 1, "window": 64}),
        (SyncAllreduce, {"sync_period": 5}, {"quorum": "all", "sync_period": 5, "window": 5}),
    ]
    for kind, arguments, expected in chosen:
        with kind(comm, x, **arguments) as coll:
            used = {"group_size": comm.size, "window": coll.options.window} | expected
            assert coll.options == Options(**used).with_environment()
            assert repr(coll).startswith(f"{kind.__name__}(")


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        (GroupAllreduce, {"group_size": 1, "quorum": 1}),
        (SoloAllreduce, {"quorum": 1}),
        (SoloAllreduce, {"group_size": 1}),
        (MajorityAllreduce, {"grouping": "pairs"}),
        (QuorumAllreduce, {"k": 1, "activation": "world"}),
        (SyncAllreduce, {"quorum": "all"}),
    ],
)
def test_what_a_class_has_chosen_is_not_an_argument(
    comm: MPI.Intracomm, kind: type[PartialAllreduce], option: dict[str, Any]
) -> None:
    (name,) = set(option) - {"k"} - ({"group_size"} if kind is GroupAllreduce else set())
    words = rf"{kind.__name__} chooses {name} itself: use PartialAllreduce"
    with pytest.raises(TypeError, match=words):
        kind(comm, np.ones(3, np.float32), **option)


def test_options_that_do_not_exist(comm: MPI.Intracomm) -> None:
    """On one rank: all raise it."""
    option = {"graze" if comm.rank == comm.size - 1 else "grace": 0}
    with pytest.raises(TypeError, match=r"SoloAllreduce has no option 'graze'; .* grace, late"):
        SoloAllreduce(comm, np.ones(3, np.float32), **option)


@pytest.mark.parametrize("k", [0, -1, 100, 1.5, "two", "all", None])
def test_quorums_that_make_no_sense(comm: MPI.Intracomm, k: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^k={k!r} must be "):
        QuorumAllreduce(comm, np.ones(3, np.float32), k)
