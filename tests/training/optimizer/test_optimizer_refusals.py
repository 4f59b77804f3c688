"""Check what a DistributedOptimizer refuses after it was made; on one rank."""

from collections.abc import Callable

import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.algorithms import Algorithm
from wagma.training.strategies.gradients import GradientAveraging

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


# ---- graphs from before an average ---------------------------------------------------------------


def test_a_graph_from_before_an_average_does_not_see_it(algorithm: Algorithm) -> None:
    """Its gradient would be that of other values: torch raises where it is told of the write."""
    weights, unused = parameter(), parameter()
    unused.grad = None
    loss = unused.square().sum()
    with wagma.DistributedOptimizer(torch.optim.SGD([weights, unused]), algorithm) as optimizer:
        words = "modified by an inplace operation"
        with pytest.raises(RuntimeError, match=words):
            loss.backward()
        loss = unused.square().sum()
        optimizer.step()
        if isinstance(algorithm, GradientAveraging):
            loss.backward()  # it was not written
        elif not isinstance(algorithm, wagma.LocalSGD):
            with pytest.raises(RuntimeError, match=words):
                loss.backward()
        optimizer.zero_grad()
        loss = unused.square().sum()
        optimizer.synchronize()
        with pytest.raises(RuntimeError, match=words):
            loss.backward()


# ---- after the end -------------------------------------------------------------------------------


class LocalError(Exception):
    """This rank fails."""


def end_block(optimizer: wagma.DistributedOptimizer) -> None:
    with optimizer:
        pass


def fail_in_block(optimizer: wagma.DistributedOptimizer) -> None:
    with pytest.raises(LocalError), optimizer:
        raise LocalError


@pytest.mark.parametrize("end", [wagma.DistributedOptimizer.close, end_block, fail_in_block])
def test_a_closed_training_does_not_go_on(
    end: Callable[[wagma.DistributedOptimizer], None], algorithm: Algorithm
) -> None:
    weights = parameter()
    optimizer = wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), algorithm)
    optimizer.step()
    state = optimizer.state_dict()
    end(optimizer)
    optimizer.close()
    weights.grad = torch.ones(3)
    before = weights.tolist()
    calls: dict[str, Callable[[], object]] = {
        "step": optimizer.step,
        "synchronize": optimizer.synchronize,
        "join": optimizer.join(3).__enter__,
        "add_param_group": lambda: optimizer.add_param_group({"params": [parameter()]}),
        "load_state_dict": lambda: optimizer.load_state_dict(state),
    }
    name = type(algorithm).__name__
    for call, make in calls.items():
        with pytest.raises(
            RuntimeError,
            match=rf"^{call}\(\) of a training that is closed: this {name} .* Make a new",
        ):
            make()
    assert weights.tolist() == before
    assert optimizer.version == optimizer.stats()["version"] == 1
    assert optimizer.state_dict() == state


def test_a_training_that_is_closed_in_join_ends_there(algorithm: Algorithm) -> None:
    optimizer = wagma.DistributedOptimizer(torch.optim.SGD([parameter()], lr=0.1), algorithm)
    words = r"^join\(\) of a training that is closed"
    with pytest.raises(RuntimeError, match=words), optimizer.join(3):
        optimizer.step()
        optimizer.close()
    assert optimizer.version == 1
