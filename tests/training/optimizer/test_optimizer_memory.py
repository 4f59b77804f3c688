"""Where a model lies that is averaged: in the collective's array, as long as it trains."""

import gc
import os
from contextlib import suppress
from unittest import mock

import pytest
import torch
from mapped import segments
from stalls import patient_creation, soon  # noqa: F401 (a fixture)
from tiny import ALGORITHMS, COMM, RANK, SIZE

import wagma
from wagma.collectives import PeerError, StallError
from wagma.training.flat import FlatParameters
from wagma.training.strategies.groups import GroupAveraging

COUNT = (4 << 20) // 4 + 3  # from here on arrays change their memory, see csrc/shm/segment.h
MEAN = (SIZE - 1) / 2  # of the ranks

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(SIZE > 4, reason="fewer ranks show it, in less time"),
]


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(count)) for count in (COUNT, 5)]


def step(optimizer: wagma.DistributedOptimizer) -> None:
    """Every parameter becomes less by the rank, and all ranks come at one time."""
    COMM.Barrier()
    step_alone(optimizer)


def step_alone(optimizer: wagma.DistributedOptimizer) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.full_like(parameter, RANK)
    optimizer.step()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("wait_avoiding", [True, False])
def test_what_a_forked_child_loads_stays_with_it(wait_avoiding: bool) -> None:
    """As an evaluation of other weights beside the training does."""
    model = parameters()
    algorithm = wagma.WAGMA(COMM, SIZE, sync_period=1, wait_avoiding=wait_avoiding)
    with wagma.DistributedOptimizer(torch.optim.SGD(model, lr=1.0), algorithm) as optimizer:
        step(optimizer)
        child = os.fork()
        if child == 0:
            alone = all(bool((parameter == -MEAN).all()) for parameter in model)
            with torch.no_grad():
                for parameter in model:
                    parameter.fill_(7.0)
            os._exit(0 if alone and all(bool((p == 7.0).all()) for p in model) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert all(bool((parameter == -MEAN).all()) for parameter in model)
        step(optimizer)
        assert all(bool((parameter == -2 * MEAN).all()) for parameter in model)


@pytest.mark.parametrize("wait_avoiding", [True, False])
def test_a_large_model_is_averaged_where_it_lies(wait_avoiding: bool) -> None:
    options = {"grace": 20.0} if wait_avoiding else {}
    first, second = model = parameters()
    inner = torch.optim.SGD(model, lr=1.0)
    algorithm = wagma.WAGMA(COMM, SIZE, sync_period=3, wait_avoiding=wait_avoiding, **options)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        places = [parameter.data_ptr() for parameter in model]
        seen = first.detach()
        for version in range(1, 8):
            step(optimizer)
            assert optimizer.outcome is not None
            if len(optimizer.outcome.contributors) < SIZE:
                pytest.skip("a rank came late")
            assert (first == -version * MEAN).all()
            assert (second == -version * MEAN).all()
            assert torch.equal(seen, first)
            assert [parameter.data_ptr() for parameter in model] == places
        assert isinstance(algorithm.collective, wagma.collectives.PartialAllreduce)
        with pytest.raises(BufferError, match="still alive"):
            algorithm.collective.empty()
    COMM.Barrier()
    assert torch.equal(seen, first)
    places = [parameter.data_ptr() for parameter in model]
    optimizer.close()
    assert [parameter.data_ptr() for parameter in model] == places, "it has moved already"


@pytest.mark.parametrize("name", ["WAGMA", pytest.param("ADPSGD", marks=pytest.mark.long)])
@pytest.mark.parametrize("end", ["close", "exception", "more parameters"])
def test_after_its_training_it_has_memory_of_its_own(name: str, end: str) -> None:
    gc.collect()
    before = segments()
    model = parameters()
    optimizer = wagma.DistributedOptimizer(torch.optim.SGD(model, lr=1.0), ALGORITHMS[name](COMM))
    assert isinstance(optimizer.algorithm, GroupAveraging)
    shared = optimizer.algorithm.collective.transport == "shm"
    for _ in range(3):
        step(optimizer)
    optimizer.synchronize()
    assert segments() > before or not shared
    kept = [parameter.detach().clone() for parameter in model]
    state = model[1].detach()  # as in a state_dict() from before
    if end == "more parameters":
        added = torch.nn.Parameter(torch.full((7,), 3.0))
        optimizer.add_param_group({"params": [added]})
        assert all(map(torch.equal, model, kept))
        for _ in range(2):
            step(optimizer)
        optimizer.synchronize()
        assert (model[0] == model[0][0]).all()
        kept = [parameter.detach().clone() for parameter in model]
        assert (added == 3).all()
    if end == "exception":
        COMM.Barrier()
        with pytest.raises(ZeroDivisionError), optimizer:
            raise ZeroDivisionError
    else:
        optimizer.close()
    assert all(map(torch.equal, model, kept))
    assert end == "more parameters" or torch.equal(state, kept[1])
    model[0].data.add_(1)
    del optimizer, state
    assert segments() == before
    assert (model[0] == kept[0] + 1).all()
    COMM.Barrier()


@pytest.mark.usefixtures("patient_creation")
@pytest.mark.parametrize("wait_avoiding", [True, False])
def test_a_step_that_fails_leaves_the_own_model(wait_avoiding: bool) -> None:
    model = parameters()
    algorithm = wagma.WAGMA(
        COMM, SIZE, sync_period=1, wait_avoiding=wait_avoiding, timeout=soon(COMM)
    )
    optimizer = wagma.DistributedOptimizer(torch.optim.SGD(model, lr=1.0), algorithm)
    if RANK == 0:
        for parameter in model:
            parameter.grad = torch.full_like(parameter, -1.0)
        with pytest.raises(StallError), optimizer:
            optimizer.step()
        assert all((parameter == 1).all() for parameter in model)
    COMM.Barrier()
    with suppress(PeerError):  # over messages rank 0, which has failed, would have to answer
        optimizer.close()


@pytest.mark.parametrize("moment", ["making", "close", "exception"])
def test_where_there_is_no_memory_the_others_are_told(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = mock.Mock(side_effect=MemoryError)

    def make() -> wagma.DistributedOptimizer:
        algorithm = wagma.WAGMA(COMM, sync_period=1, timeout=20.0)
        return wagma.DistributedOptimizer(torch.optim.SGD(parameters(), lr=1.0), algorithm)

    if moment == "making":
        with monkeypatch.context() as patch:
            if RANK == 0:
                patch.setattr(FlatParameters, "move", move)
                with pytest.raises(MemoryError) as caught:
                    make()
                assert caught.tb is not None  # it keeps what was made alive
            else:
                optimizer = make()
    else:
        optimizer = make()
        step(optimizer)
        if RANK == 0:
            monkeypatch.setattr(FlatParameters, "move", move)
            with pytest.raises(MemoryError):
                if moment == "close":
                    optimizer.close()
                else:
                    error = ZeroDivisionError()
                    optimizer.__exit__(type(error), error, None)
    if RANK > 0 and moment == "close":
        step_alone(optimizer)
        optimizer.close()
    elif RANK > 0:
        with pytest.raises(PeerError), optimizer:
            step_alone(optimizer)
    COMM.Barrier()
