"""Make rank 0's what the optimizer does not hold: frozen parameters and buffers."""

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from refusals import error_everywhere
from tiny import ALGORITHMS, COMM, RANK, SIZE, on_all_ranks

import wagma

pytestmark = pytest.mark.mpi


def build_model(seed: int = RANK) -> torch.nn.Sequential:
    """Every kind of tensor a model may have, drawn anew on each rank."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    )
    model[0].requires_grad_(False)
    model[1].running_mean.normal_()
    model.register_parameter("float16", torch.nn.Parameter(torch.randn(3).half()))
    model.register_parameter("transposed", torch.nn.Parameter(torch.randn(3, 2).T))
    model.register_buffer("waves", torch.randn(3, dtype=torch.cfloat))
    model.register_buffer("mask", torch.rand(5) > 0.5, persistent=False)
    model.register_buffer("number", torch.tensor(seed))
    model.register_buffer("nothing", torch.empty(0))
    return model


def tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def test_all_of_a_model_becomes_rank_0s() -> None:
    model, first = build_model(), build_model(seed=0)
    wagma.broadcast(model)  # those that the launcher started
    assert all(map(torch.equal, tensors(model), tensors(first)))


def test_a_graph_from_before_does_not_see_it() -> None:
    model = torch.nn.Linear(3, 1)
    loss = model.weight.square().sum()
    wagma.broadcast(model, COMM)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("name", ["WAGMA", "AllreduceSGD", "SGP"])
def test_a_model_that_is_given_is_one_everywhere(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, first = build_model(), build_model(seed=0)
    inner = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM), model=model) as optimizer:
        assert all(map(torch.equal, tensors(model), tensors(first)))
        model[2].weight.grad = torch.ones(1, 4)
        optimizer.step()
        optimizer.synchronize()
        body = [*model[0].parameters(), *model[2].parameters()]
        assert len(set(on_all_ranks(*body))) == 1
    assert not caplog.records


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("alike", [True, False])
def test_rank_0_warns_where_a_model_may_differ(
    alike: bool, caplog: pytest.LogCaptureFixture
) -> None:
    inner = torch.optim.SGD(build_model(0 if alike else RANK)[2].parameters(), lr=0.1)
    with (
        caplog.at_level(logging.WARNING),
        wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)),
    ):
        texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == (RANK == 0 and not alike)
    assert all("DistributedOptimizer(..., model=model)" in text for text in texts)


def expanded() -> torch.Tensor:
    return torch.arange(4).expand(2, -1)


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2)


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


FAULTS: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "expanded": (expanded, r"is expanded.*tensor\.clone\(\)"),
    "conj": (lambda: torch.full((2,), 1j).conj(), r"conj.*resolve_conj\(\)"),
    "quantized": (quantized, r"is quantized.*dequantize\(\)"),
    "inference": (inference, r"inference_mode\(\).*clone\(\)"),
    "sparse": (lambda: torch.eye(2).to_sparse(), r"layout torch\.sparse_coo.*to_dense\(\)"),
    "meta": (lambda: torch.ones(2, device="meta"), r"on meta.*model\.to_empty"),
    "shared": (lambda: torch.ones(2).share_memory_(), r"share_memory\(\).*copy\.deepcopy"),
}


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_tensor_that_cannot_be_written_is_named_on_every_rank(
    fault: str, everywhere: bool
) -> None:
    make, words = FAULTS[fault]
    model = torch.nn.Linear(2, 2)
    wrong = everywhere or RANK == SIZE - 1
    model.register_buffer("level", make() if wrong else torch.ones(make().shape))
    with pytest.raises(ValueError, match=rf"level .*{words}"):
        wagma.broadcast(model, COMM)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=rf"level .*{words}"):
        wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM), model=model)
    with (
        wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer,
        pytest.raises(ValueError, match=rf"buffer 0 .*{words}"),
    ):
        optimizer.synchronize(buffers=model.buffers())


@pytest.mark.mpi(min_size=2)
def test_different_models_are_refused_on_every_rank() -> None:
    model: Any = torch.nn.Linear(3, 4 if RANK == SIZE - 1 else 2)
    text = error_everywhere(COMM, lambda: wagma.broadcast(model, COMM), ValueError)
    assert f"rank {SIZE - 1} has weight: float32 [4, 3], rank 0 weight: float32 [2, 3]" in text


def test_what_is_no_model_is_refused() -> None:
    parameters: Any = list(torch.nn.Linear(2, 2).parameters())
    with pytest.raises(TypeError, match="model is a list"):
        wagma.broadcast(parameters, COMM)
    with pytest.raises(TypeError, match="model is a list"):
        wagma.DistributedOptimizer(
            torch.optim.SGD(parameters), wagma.AllreduceSGD(COMM), model=parameters
        )
