"""BatchNorm's statistics and other buffers, which are no parameters."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tiny import ALGORITHMS, COMM, RANK, SIZE, batch, on_all_ranks

import wagma

pytestmark = pytest.mark.mpi


def build_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1)
    )
    model.register_buffer("level", torch.full((3,), RANK, dtype=torch.float16))
    model.register_buffer("mask", torch.tensor([True, RANK == 0, False]))
    model.register_buffer("nothing", torch.empty(0))
    return model


def train(model: torch.nn.Module, optimizer: wagma.DistributedOptimizer, last: int) -> None:
    while (step := optimizer.version) < last:
        optimizer.zero_grad()
        model(batch(step, RANK).float() * (1 + RANK)).square().mean().backward()
        optimizer.step()


def gathered(model: torch.nn.Module) -> list[dict[str, Any]]:
    return COMM.allgather({name: tensor.numpy() for name, tensor in model.named_buffers()})


@pytest.mark.parametrize("name", ["WAGMA", "AllreduceSGD", "DPSGD"])
def test_one_model_everywhere(name: str) -> None:
    """Floating buffers are averaged, counts and masks are rank 0's."""
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        with optimizer.join(3 + (RANK == 0)):
            train(model, optimizer, 3 + (RANK == 0))
        before = gathered(model)
        optimizer.synchronize(buffers=model.buffers())
        assert len(set(on_all_ranks(*model.parameters(), *model.buffers()))) == 1
    for name_, tensor in model.named_buffers():
        theirs = [buffers[name_] for buffers in before]
        if tensor.is_floating_point():
            mean = np.mean([value.astype(np.float64) for value in theirs], axis=0)
            np.testing.assert_array_equal(tensor.numpy(), mean.astype(theirs[0].dtype))
        else:
            np.testing.assert_array_equal(tensor.numpy(), theirs[0])
    assert model[1].num_batches_tracked == before[0]["1.num_batches_tracked"] >= 1
    assert model.mask.tolist() == [True, True, False]
    model.eval()
    outputs = model(batch(0, 0).float())
    assert len(set(on_all_ranks(outputs))) == 1


@pytest.mark.mpi(min_size=2)
def test_without_it_buffers_stay_each_ranks_own() -> None:
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM)) as optimizer:
        train(model, optimizer, 2)
        optimizer.synchronize()
        assert len(set(on_all_ranks(model[1].running_var))) == SIZE


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("fault", ["shape", "number", "kind", "device"])
def test_different_buffers_are_refused_on_every_rank(fault: str) -> None:
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    buffers: list[Any] = [torch.full((3,), float(RANK)), torch.zeros(2, dtype=torch.int64)]
    if RANK == SIZE - 1:
        buffers = {
            "shape": [torch.ones(4), buffers[1]],
            "number": buffers[:1],
            "kind": [1.0, buffers[1]],
            "device": [torch.ones(3, device="meta"), buffers[1]],
        }[fault]
    words = {"kind": "buffer 0 is a float", "device": "buffer 0 is on meta"}
    kind = TypeError if fault == "kind" else ValueError
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM)) as optimizer:
        with pytest.raises(kind, match=words.get(fault, rf"ranks \[{SIZE - 1}\] are not those")):
            optimizer.synchronize(buffers=buffers)
        assert optimizer.version == 0
        if RANK < SIZE - 1:
            assert buffers[0].tolist() == [RANK] * 3
        optimizer.synchronize()


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_ends_first_is_not_taken_for_a_dead_one() -> None:
    """The last rank comes last, and fails while rank 0 stands between two looks for messages."""
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    algorithm = wagma.WAGMA(COMM)
    look = algorithm._check_lost

    def look_late() -> None:
        time.sleep(0.1)
        look()

    def buffers() -> Iterator[torch.Tensor]:
        time.sleep(0.05 * (RANK == SIZE - 1))
        yield torch.zeros(1).expand(3)

    if RANK == 0:
        algorithm._check_lost = look_late
    with (
        pytest.raises(ValueError, match="buffer 0 is expanded"),
        wagma.DistributedOptimizer(inner, algorithm, model=model) as optimizer,
    ):
        optimizer.synchronize(buffers=buffers())
