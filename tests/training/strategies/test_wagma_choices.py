"""WAGMA passes its arguments on to its collective; it trains where steps do not count versions."""

from typing import Any

import pytest
import torch
from mpi4py import MPI

import wagma

pytestmark = pytest.mark.mpi


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


@pytest.mark.mpi(min_size=2)
def test_training_with_fast_forward(comm: MPI.Intracomm) -> None:
    """Who is behind makes fewer steps, and all end at the same version with one model."""
    parameter = torch.nn.Parameter(torch.full((3,), float(comm.rank)))
    algorithm = wagma.WAGMA(comm, group_size=comm.size, sync_period=None, missed="fast-forward")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    skipped = steps = 0
    met = False
    with wagma.DistributedOptimizer(optimizer, algorithm) as distributed:
        schedule = torch.optim.lr_scheduler.StepLR(distributed, 4, 0.5)
        while distributed.version < 40:
            if not met and (comm.rank == 0 or distributed.version > 2):
                comm.Barrier()  # rank 0 begins when the others are far ahead
                met = True
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
    assert skipped > 0 or comm.rank > 0
    assert len(set(comm.allgather(parameter.detach().numpy().tobytes()))) == 1
