"""The classes of the methods: which arguments they choose, and which they take."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.collectives import (
    GroupAllreduce,
    MajorityAllreduce,
    Options,
    PartialAllreduce,
    QuorumAllreduce,
    SoloAllreduce,
    SyncAllreduce,
)


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


@pytest.mark.parametrize(
    ("group_size", "error"), [(0, ValueError), (100, ValueError), ("2", TypeError)]
)
def test_a_wrong_group_size_of_wagma_is_everyones_error(
    comm: MPI.Intracomm, group_size: Any, error: type[Exception]
) -> None:
    """On one rank: nobody waits for it."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(error, match=f"group_size={group_size!r} must be"):
        wagma.DistributedOptimizer(
            torch.optim.SGD([parameter], lr=0.1),
            wagma.WAGMA(comm, group_size if comm.rank == comm.size - 1 else None),
        )


def test_wagma_passes_its_choices_on(comm: MPI.Intracomm) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    algorithm = wagma.WAGMA(
        comm, dynamic_groups=False, activation="world", missed="fast-forward", grace=0, window=7
    )
    with wagma.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), algorithm):
        used = algorithm.collective.options
        assert (used.quorum, used.grace, used.window) == (1, 0, 7)
        assert (used.grouping, used.activation, used.missed) == ("fixed", "world", "fast-forward")


@pytest.mark.mpi
def test_training_with_fast_forward(comm: MPI.Intracomm) -> None:
    """Who is behind makes fewer steps, and all end at the same version with one model."""
    parameter = torch.nn.Parameter(torch.full((3,), float(comm.rank)))
    algorithm = wagma.WAGMA(comm, group_size=comm.size, sync_period=None, missed="fast-forward")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    skipped = steps = 0
    with wagma.DistributedOptimizer(optimizer, algorithm) as distributed:
        schedule = torch.optim.lr_scheduler.StepLR(distributed, 4, 0.5)
        while distributed.version < 40:
            if comm.rank == 0:
                time.sleep(0.02)
            parameter.grad = torch.ones(3)
            distributed.step()
            assert distributed.outcome is not None
            skipped += distributed.outcome.skipped
            steps += 1
            for _ in range(1 + distributed.outcome.skipped):
                schedule.step()
            assert schedule.get_last_lr() == [0.1 * 0.5 ** (distributed.version // 4)]
        assert distributed.version == steps + skipped == 40
        distributed.synchronize()
        schedule = torch.optim.lr_scheduler.LambdaLR(distributed, lambda _: 1 / distributed.version)
        distributed.step()
        schedule.step()
        assert schedule.get_last_lr() == [pytest.approx(0.1 / distributed.version)]
        distributed.synchronize()
    assert sum(comm.allgather(skipped)) > 0
    assert len(set(comm.allgather(parameter.detach().numpy().tobytes()))) == 1
