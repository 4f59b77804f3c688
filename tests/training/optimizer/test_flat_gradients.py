"""Gradients that are gathered into one array, and averages that are handed out of it."""

import pytest
import torch

from wagma.collectives import MismatchError
from wagma.training import flat_gradients
from wagma.training.flat import FlatParameters, Layout
from wagma.training.flat_gradients import FlatGradients


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(shape, dtype=dtype))


def flatten(*tensors: torch.nn.Parameter) -> FlatGradients:
    flat = FlatParameters(tensors, Layout.of(tensors))
    size = FlatGradients.size_for(flat.layout)
    memory = torch.full((size,), torch.nan, dtype=flat.layout.dtype)
    return FlatGradients(tensors, flat.layout, memory)


@pytest.fixture
def tensors() -> list[torch.nn.Parameter]:
    return [parameter(3), parameter(2, 2), parameter(1)]


@pytest.fixture
def gradients(tensors: list[torch.nn.Parameter]) -> FlatGradients:
    return flatten(*tensors)


def of(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.grad is not None
    return tensor.grad


def test_gathered(tensors: list[torch.nn.Parameter], gradients: FlatGradients) -> None:
    (tensors[0].sum() * 2 + tensors[1].sum() * 3).backward()
    kept = of(tensors[0])
    gradients.gather(0.5)
    expected = torch.zeros(16 * 3 + 3)
    expected[0:3], expected[16:20] = 2, 3
    expected[48:] = torch.tensor([1, 1, 0])
    assert torch.equal(gradients.memory[:51], expected)
    assert gradients.memory[-2:].tolist() == [0.5, 0]
    assert tensors[0].grad is kept
    tensors[0].grad = None
    tensors[2].grad = torch.full((1,), 7.0)
    gradients.gather(None)
    assert gradients.memory[:3].tolist() == [0, 0, 0]
    assert gradients.memory[32] == 7
    assert gradients.memory[48:51].tolist() == [0, 1, 1]
    assert gradients.memory[-2:].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("recycled", [0, 1 << 20])
def test_averages_have_memory_of_their_own(
    recycled: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat_gradients, "RECYCLED", recycled)
    weights = torch.nn.Parameter(torch.randn(4, 3, dtype=dtype).T)
    unused = parameter(2, dtype=dtype)
    gradients = flatten(weights, unused)
    kept = []
    for step in range(6):
        weights.grad = torch.full_like(weights, step)
        if step != 3:  # nobody keeps this one
            kept.append((step, weights.grad.detach()))
        gradients.gather(step)
        gradients.memory.mul_(10)
        assert gradients.hand_out() == 10 * step
        if step != 3:
            kept.append((10 * step, of(weights)[1:]))
        assert unused.grad is None
        assert of(weights).stride() == weights.stride()
        weights.grad = of(weights) if step % 2 else None
    for value, gradient in kept:
        assert (gradient == value).all(), value


def test_memory_of_large_gradients_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_gradients, "RECYCLED", 0)
    weights = parameter(5)
    gradients = flatten(weights)
    places = []
    for _ in range(4):
        weights.grad = torch.ones(5)
        gradients.gather(None)
        gradients.hand_out()
        places.append(of(weights).data_ptr())
    assert len(set(places)) == 1


def test_a_gradient_of_another_rank_only_is_given_to_the_optimizer(
    tensors: list[torch.nn.Parameter], gradients: FlatGradients
) -> None:
    gradients.gather(None)
    gradients.memory[32] = 5  # what the average over the ranks may hold
    gradients.memory[48 + 2] = 0.25
    gradients.hand_out()
    assert [tensor.grad is None for tensor in tensors] == [True, True, False]
    assert of(tensors[2]).tolist() == [5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 2, 300])
def test_one_rank_with_another_scale_is_noticed(ranks: int, dtype: torch.dtype) -> None:
    weights = parameter(3, dtype=dtype)
    gradients = flatten(weights)

    def average(*scales: float) -> None:
        memory = torch.zeros(gradients.memory.shape)
        for scale in scales:
            gradients.gather(None, scale)
            memory += gradients.memory.float()
        gradients.memory.copy_(memory / len(scales))
        gradients.hand_out()

    for scale in (1.0, 65536.0, 3.7, 2.0**-20):
        average(*[scale] * ranks)
        if ranks > 1:
            for other in (scale * 2, scale / 2, scale * 1.001):
                with pytest.raises(MismatchError, match="different scales"):
                    average(*[scale] * (ranks - 1), other)


def test_sparse_gradients_are_refused() -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    gradients = flatten(*embedding.parameters())
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse=False"):
        gradients.gather(None)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
def test_graphs_of_gradients_live() -> None:
    weights = parameter(3)
    gradients = flatten(weights)
    weights.pow(3).sum().backward(create_graph=True)
    gradient = of(weights)
    gradients.gather(None)
    gradients.hand_out()
    (second,) = torch.autograd.grad(gradient.sum(), weights)
    torch.testing.assert_close(second, 6 * weights.detach())
    assert not of(weights).requires_grad
