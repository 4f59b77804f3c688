"""Parameters as views of one array."""

import copy
import io

import pytest
import torch

from wagma.training.flat import ALIGNMENT, FlatParameters, Layout


def parameter(*shape: int, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(shape, dtype=dtype))


def integers() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False)


def flatten(*tensors: torch.nn.Parameter) -> FlatParameters:
    return FlatParameters(tensors, Layout.of(tensors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_values_and_identity_are_kept(dtype: torch.dtype) -> None:
    tensors = [parameter(3, 5, dtype=dtype), parameter(dtype=dtype), parameter(0, dtype=dtype)]
    before = [tensor.detach().clone() for tensor in tensors]
    flat = flatten(*tensors)
    assert flat.flat.dtype == dtype
    assert all(a is b for a, b in zip(flat.parameters, tensors, strict=True))
    for tensor, value in zip(tensors, before, strict=True):
        assert torch.equal(tensor, value)
    with torch.no_grad():
        flat.flat.fill_(2)
    assert all(bool((tensor == 2).all()) for tensor in tensors)


def test_each_parameter_starts_on_a_cache_line() -> None:
    tensors = [parameter(1), parameter(17), parameter(2, 3)]
    flat = flatten(*tensors)
    starts = [tensor.data_ptr() - flat.flat.data_ptr() for tensor in tensors]
    assert starts == [0, ALIGNMENT, ALIGNMENT + 2 * ALIGNMENT]
    assert flat.flat.numel() == 16 + 32 + 16


def test_a_part_that_is_saved_holds_only_itself() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        body, head = (torch.nn.Linear(100, n, dtype=dtype) for n in (1000, 1))
        flat = flatten(*body.parameters(), *head.parameters())
        for _ in range(2):
            saved, copied = io.BytesIO(), copy.deepcopy(head.state_dict())
            torch.save(head.state_dict(), saved)
            assert len(saved.getvalue()) < 5000
            assert copied["weight"].untyped_storage().nbytes() == 100 * dtype.itemsize
            saved.seek(0)
            assert torch.equal(torch.load(saved, weights_only=True)["weight"], head.weight)
            flat.move(torch.empty_like(flat.flat))


def test_a_graph_from_before_does_not_use_what_was_written() -> None:
    weights = parameter(3)
    flat = flatten(weights)
    loss = weights.square().sum()
    flat.flat.zero_()
    flat.written()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_padding_is_zero() -> None:
    flat = flatten(torch.nn.Parameter(torch.ones(3)))
    assert flat.flat.tolist() == [1.0] * 3 + [0.0] * 13


def test_order_in_memory_is_kept() -> None:
    convolution = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    stride = convolution.weight.stride()
    value = convolution.weight.detach().clone()
    flatten(*convolution.parameters())
    assert convolution.weight.stride() == stride
    assert torch.equal(convolution.weight, value)


@pytest.mark.parametrize(
    ("shape", "stride"), [((5, 3), (1, 5)), ((3, 1), (1, 3)), ((2, 1, 3, 3), (9, 1, 3, 1))]
)
def test_strides_are_kept(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    tensor = torch.nn.Parameter(torch.empty_strided(shape, stride).normal_())
    value = tensor.detach().clone()
    flatten(tensor)
    assert tensor.stride() == stride
    assert torch.equal(tensor, value)


def test_a_parameter_with_gaps_becomes_dense() -> None:
    tensor = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4)[:, ::2])
    flatten(tensor)
    assert tensor.tolist() == [[0, 2], [4, 6], [8, 10]]


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([], "no parameters"),
        ([parameter(2), parameter(2, dtype=torch.float64)], "model.float()"),
        ([parameter(2, dtype=torch.complex64)], "torch.view_as_real(parameter)"),
        ([integers()], "leave it out of the optimizer"),
        ([parameter(2).to(torch.float8_e5m2)], "model.float()"),
        ([torch.nn.Parameter(torch.empty(2, device="meta"))], "to_empty(device='cpu')"),
        ([parameter(2).share_memory_()], "copy.deepcopy(model)"),
        ([torch.nn.Parameter(torch.eye(2).to_sparse())], "to_dense"),
    ],
)
def test_what_cannot_be_flattened_is_refused(tensors: list[torch.nn.Parameter], words: str) -> None:
    with pytest.raises(ValueError, match="parameter") as caught:
        Layout.of(tensors)
    assert words in str(caught.value)


def test_remedies_help() -> None:
    complex_ = parameter(2, dtype=torch.complex64)
    meta, shared = torch.nn.Linear(2, 2, device="meta"), torch.nn.Linear(2, 2).share_memory()
    float8 = torch.nn.Linear(2, 2).to(torch.float8_e5m2)
    Layout.of([torch.nn.Parameter(torch.view_as_real(complex_.detach()))])
    for model in (meta.to_empty(device="cpu"), copy.deepcopy(shared), float8.float()):
        flatten(*model.parameters())


def test_shared_memory_is_refused() -> None:
    first = parameter(4)
    second = torch.nn.Parameter(first.data[2:])
    with pytest.raises(ValueError, match=r"parameters 1 and 2 share memory.*same Parameter"):
        Layout.of([parameter(1), first, second])


def test_a_second_flattening_is_allowed_where_parts_do_not_overlap() -> None:
    tensors = [parameter(4), parameter(4)]
    flatten(*tensors)
    flatten(*tensors).check()


@pytest.mark.parametrize("change", ["data", "dtype", "again"])
def test_reassigned_data_is_noticed(change: str) -> None:
    module = torch.nn.Linear(3, 2)
    flat = flatten(*module.parameters())
    flat.check()
    with torch.no_grad():
        module.bias.copy_(torch.ones(2))
    module.load_state_dict(torch.nn.Linear(3, 2).state_dict())
    module.to("cpu")
    flat.check()
    if change == "data":
        module.bias.data = torch.zeros(2)
    elif change == "dtype":
        module.double()
    else:
        flatten(*module.parameters())
    with pytest.raises(RuntimeError, match=r"parameter [01] .*has left the flat array"):
        flat.check()


def test_moved() -> None:
    tensors = [parameter(3, 2), parameter(), parameter(5)]
    flat = flatten(*tensors)
    values = [tensor.detach().clone() for tensor in tensors]
    tensors[2].data = elsewhere = torch.ones(5)
    kept = tensors[0].detach()
    memory = torch.full_like(flat.flat, 9)
    flat.move(memory)
    assert flat.flat is memory
    assert torch.equal(tensors[0], values[0])
    assert torch.equal(tensors[1], values[1])
    assert tensors[2].data_ptr() == elsewhere.data_ptr()
    memory[0] = 17
    assert tensors[0][0, 0] == 17
    assert kept[0, 0] == values[0][0, 0]
    with pytest.raises(RuntimeError, match="parameter 2 of shape"):
        flat.check()
    tensors[2].data = flat.layout.slots[2].view(memory)
    flat.check()
    assert torch.equal(tensors[2], values[2])


def test_fingerprints_tell_models_apart() -> None:
    def fingerprint(*tensors: torch.nn.Parameter) -> str:
        return Layout.of(tensors).fingerprint()

    base = fingerprint(parameter(2, 3), parameter(4))
    assert base == fingerprint(parameter(2, 3), parameter(4))
    others = [
        fingerprint(parameter(3, 2), parameter(4)),
        fingerprint(parameter(2, 3)),
        fingerprint(parameter(2, 3, dtype=torch.float64), parameter(4, dtype=torch.float64)),
        fingerprint(torch.nn.Parameter(torch.randn(3, 2).T), parameter(4)),
    ]
    assert len({base, *others}) == 5
