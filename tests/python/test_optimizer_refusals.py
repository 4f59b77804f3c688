"""What a DistributedOptimizer refuses after it was made; on one rank."""

from collections.abc import Callable

import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.algorithms import Algorithm

SELF = MPI.COMM_SELF
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "WAGMA": lambda: wagma.WAGMA(SELF),
    "AllreduceSGD": lambda: wagma.AllreduceSGD(SELF),
    "LocalSGD": lambda: wagma.LocalSGD(SELF),
    "DPSGD": lambda: wagma.DPSGD(SELF),
    "SGP": lambda: wagma.SGP(SELF),
    "ADPSGD": lambda: wagma.ADPSGD(SELF),
    "EagerSGD": lambda: wagma.EagerSGD(SELF, "solo"),
}


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> Algorithm:
    return ALGORITHMS[request.param]()


def parameter() -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.ones(3))
    made.grad = torch.ones(3)
    return made


# ---- parameters that are not averaged ------------------------------------------------------------


def add_a_group(inner: torch.optim.Optimizer) -> None:
    inner.add_param_group({"params": [parameter()]})


def take_one_away(inner: torch.optim.Optimizer) -> None:
    inner.param_groups[0]["params"].pop()


def replace_the_list(inner: torch.optim.Optimizer) -> None:
    inner.param_groups[0]["params"] = [parameter(), parameter()]


def reverse_the_list(inner: torch.optim.Optimizer) -> None:
    inner.param_groups[0]["params"].reverse()


@pytest.mark.parametrize("change", [add_a_group, take_one_away, replace_the_list, reverse_the_list])
def test_groups_that_are_changed_elsewhere_are_noticed(
    change: Callable[[torch.optim.Optimizer], None], algorithm: Algorithm
) -> None:
    inner = torch.optim.SGD([parameter(), parameter()], lr=0.1)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        optimizer.step()
        before = [group["params"].copy() for group in inner.param_groups]
        change(inner)
        for call in (
            optimizer.step,
            optimizer.synchronize,
            optimizer.state_dict,
            lambda: optimizer.add_param_group({"params": [parameter()]}),
        ):
            with pytest.raises(
                RuntimeError,
                match=r"not the 2 which are averaged.*DistributedOptimizer\.add_param_group\(\)",
            ):
                call()
        assert optimizer.version == 1
        del inner.param_groups[1:]
        inner.param_groups[0]["params"] = before[0]
        optimizer.add_param_group({"params": [parameter()]})
        optimizer.step()
        assert len(optimizer.state_dict()["param_groups"]) == 2
