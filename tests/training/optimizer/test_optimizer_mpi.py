"""DistributedOptimizer on several ranks."""

import copy
import time
from collections.abc import Callable

import numpy as np
import pytest
import tiny
import torch
from refusals import error_everywhere
from tiny import (
    ALGORITHMS,
    COMM,
    EACH_KIND,
    OPTIMIZERS,
    batch,
    build_model,
    loss_of,
    mostly_long,
    values,
)
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm
from wagma.collectives import PeerError

pytestmark = pytest.mark.mpi


def step_with_closure(
    model: torch.nn.Module, optimizer: Optimizer, inputs: torch.Tensor, number: bool = False
) -> float:
    """One step whose closure returns a tensor, or a number."""

    def closure() -> float:
        optimizer.zero_grad()
        loss = loss_of(model, inputs)
        loss.backward()
        return loss.item() if number else loss

    loss = optimizer.step(closure)
    assert isinstance(loss, float if number else torch.Tensor)
    return loss if number else loss.item()


def on_all_ranks(model: torch.nn.Module) -> list[str]:
    """Digests of the ranks' parameters."""
    return tiny.on_all_ranks(values(model))


@pytest.fixture(params=mostly_long(ALGORITHMS, EACH_KIND))
def make(request: pytest.FixtureRequest) -> Callable[..., Algorithm]:
    return ALGORITHMS[request.param]


def test_training_starts_with_the_model_of_rank_0(make: Callable[..., Algorithm]) -> None:
    model = build_model(seed=COMM.rank)
    with wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), make(COMM)):
        assert torch.equal(values(model), values(build_model(seed=0)))


@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_allreduce_equals_one_process_with_all_batches(name: str, number: bool) -> None:
    model, alone = build_model(), build_model()
    bare = OPTIMIZERS[name](alone.parameters())
    inner = OPTIMIZERS[name](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        for step in range(10):
            loss = step_with_closure(model, optimizer, batch(step, COMM.rank), number)
            batches = torch.cat([batch(step, rank) for rank in range(COMM.size)])
            assert loss == pytest.approx(step_with_closure(alone, bare, batches), rel=1e-9)
            assert len(set(on_all_ranks(model))) == 1
        optimizer.synchronize()
        assert len(set(on_all_ranks(model))) == 1
    torch.testing.assert_close(values(model), values(alone), rtol=1e-7, atol=1e-9)


def test_wagma_that_always_synchronises_averages_the_models() -> None:
    model = build_model()
    inner = OPTIMIZERS["Adam"](model.parameters())
    local = build_model()
    bare = OPTIMIZERS["Adam"](local.parameters())
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM, sync_period=1)) as optimizer:
        for step in range(5):
            step_with_closure(model, optimizer, batch(step, COMM.rank))
            step_with_closure(local, bare, batch(step, COMM.rank))
            mean = np.empty(values(local).shape)
            COMM.Allreduce(values(local).numpy(), mean)
            mean /= COMM.size
            torch.nn.utils.vector_to_parameters(torch.from_numpy(mean), local.parameters())
            assert len(set(on_all_ranks(model))) == 1
            torch.testing.assert_close(values(model), values(local), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("group_size", [1, 2, 3, None])
def test_wagma_synchronises_every_period_and_at_the_end(group_size: int | None) -> None:
    if group_size is not None and group_size > COMM.size:
        group_size = COMM.size
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = wagma.WAGMA(COMM, group_size, sync_period=4)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        while optimizer.version < 22:
            time.sleep(0.001 * ((optimizer.version + COMM.rank) % 3))
            step_with_closure(model, optimizer, batch(optimizer.version, COMM.rank))
            outcome = optimizer.outcome
            assert outcome is not None
            if optimizer.version % 4 == 0:
                assert tuple(outcome.contributors) == tuple(range(COMM.size))
                assert set(outcome.versions) == {outcome.version}
                assert len(set(on_all_ranks(model))) == 1
        if group_size == 1 < COMM.size:
            assert len(set(on_all_ranks(model))) == COMM.size
        optimizer.synchronize()
        assert optimizer.version == 23
        assert len(set(on_all_ranks(model))) == 1


@pytest.mark.mpi(min_size=2)
def test_a_gradient_that_only_one_rank_has_is_averaged() -> None:
    used, rare, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    inner = torch.optim.SGD([used, rare, unused], lr=1.0, weight_decay=0.5)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        loss = used.sum() + (rare.sum() if COMM.rank == 1 else 0)
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(used.data, torch.full((3,), 1 - 1 - 0.5))
    torch.testing.assert_close(rare.data, torch.full((3,), 1 - 1 / COMM.size - 0.5))
    assert unused.tolist() == [1, 1, 1]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("difference", ["shape", "number", "dtype", "none", "mixed"])
def test_different_models_are_refused_on_every_rank(
    difference: str, make: Callable[..., Algorithm]
) -> None:
    tensors = [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(4))]
    if COMM.rank == COMM.size - 1:
        if difference == "shape":
            tensors[1] = torch.nn.Parameter(torch.ones(5))
        elif difference == "number":
            tensors.append(torch.nn.Parameter(torch.ones(1)))
        elif difference == "dtype":
            tensors = [torch.nn.Parameter(tensor.detach().double()) for tensor in tensors]
        elif difference == "mixed":
            tensors[1] = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        else:
            tensors = []
    inner = torch.optim.SGD([{"params": tensors}], lr=0.1)
    words = {"none": "has no parameters", "mixed": "parameter 1 is of torch.float64"}
    text = error_everywhere(COMM, lambda: wagma.DistributedOptimizer(inner, make(COMM)), ValueError)
    last = COMM.size - 1
    if difference in words:
        assert words[difference] in text
        return
    assert f"different models: those of ranks [{last}]" in text
    found = {
        "shape": "parameter 1 as float32 [5] stride [1], rank 0 as float32 [4]",
        "number": "3 parameters, rank 0 has 2",
        "dtype": "parameter 0 as float64 [2, 3] stride [3, 1], rank 0 as float32 [2, 3]",
    }
    assert f"rank {last} has {found[difference]}" in text


@pytest.mark.mpi(min_size=2)
def test_resumed_ranks_are_at_one_version_and_share_no_old_model() -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM, sync_period=None)) as optimizer:
        while optimizer.version < 5 + COMM.rank:
            step_with_closure(model, optimizer, batch(optimizer.version, COMM.rank))
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        assert saved[1]["wagma"]["version"] == 5 + COMM.rank
        COMM.Barrier()

    resumed_model = build_model(seed=7)
    inner = OPTIMIZERS["SGD"](resumed_model.parameters())
    algorithm = wagma.WAGMA(COMM, sync_period=None)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        optimizer.load_state_dict(saved[1])
        resumed_model.load_state_dict(saved[0])
        assert set(COMM.allgather(optimizer.version)) == {5}
        started = algorithm.collective.version
        time.sleep(0.05 * COMM.rank)
        step_with_closure(resumed_model, optimizer, batch(5, COMM.rank))
        outcome = optimizer.outcome
        assert outcome is not None
        assert outcome.contributors
        assert min(outcome.versions) >= started, "the random first models must not be averaged"
        assert optimizer.version == 6
        step_with_closure(resumed_model, optimizer, batch(6, COMM.rank))
        assert optimizer.version == 7


@pytest.mark.mpi(min_size=2)
def test_loading_at_different_versions_is_refused_on_every_rank() -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM, sync_period=None)) as optimizer:
        state = copy.deepcopy(optimizer.state_dict())
        if COMM.rank == 0:
            step_with_closure(model, optimizer, batch(0, 0))
        with pytest.raises(RuntimeError, match="load it before the first step"):
            optimizer.load_state_dict(state)
        COMM.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_fails_is_named_to_the_others(make: Callable[..., Algorithm]) -> None:
    class LocalError(Exception):
        pass

    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    expected = LocalError if COMM.rank == 1 else PeerError
    with (
        pytest.raises(expected) as caught,
        wagma.DistributedOptimizer(inner, make(COMM)) as optimizer,
    ):
        while optimizer.version < 400:  # twice as far as others get without rank 1, and more
            step_with_closure(model, optimizer, batch(optimizer.version, COMM.rank))
            if optimizer.version >= 3 and COMM.rank == 1:  # it may have jumped
                raise LocalError
    if COMM.rank != 1:
        # Over messages, and among neighbours, it may be one that failed because of rank 1.
        algorithm = optimizer.algorithm
        far = algorithm.collective.transport == "mpi" or isinstance(
            algorithm, wagma.DPSGD | wagma.SGP
        )
        assert ("rank " if far else "rank 1 ") in str(caught.value)


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_leaves_is_not_waited_for(make: Callable[..., Algorithm]) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    optimizer = wagma.DistributedOptimizer(inner, make(COMM))
    leaves = COMM.rank == COMM.size - 1
    while optimizer.version < (3 if leaves else 25):
        step_with_closure(model, optimizer, batch(optimizer.version, COMM.rank))
    if not leaves:
        optimizer.synchronize()
        outcome = optimizer.outcome
        assert outcome is not None
        assert tuple(outcome.contributors) == tuple(range(COMM.size - 1))
    optimizer.close()
    everybody = on_all_ranks(model)
    assert len(set(everybody[:-1])) == 1
