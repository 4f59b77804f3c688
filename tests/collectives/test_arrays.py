"""Arrays that a handle takes, and what it says about those that it does not take."""

import array
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from wagma.collectives import Handle, Segment, arrays
from wagma.collectives._engine import ndarray_fields

CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5}


def handle(initial: Any, dtype: str = "float32", quorum: int = 0) -> Handle:
    count = int(np.prod(np.shape(initial)))
    options = {"size": 1, "count": count, "dtype": CODES[dtype], "average": 0, "quorum": quorum}
    return Handle(Segment.create(options), 0, initial)


@pytest.fixture(params=[0, 1], ids=["all", "one"])
def coll(request: pytest.FixtureRequest) -> Iterator[Handle]:
    """A handle for float32 of shape (2, 3)."""
    with handle(np.zeros((2, 3), np.float32), quorum=request.param) as made:
        yield made


class Export:
    """Has nothing but DLPack."""

    def __init__(self, tensor: Any, legacy: bool = False, device: tuple[int, int] = (1, 0)) -> None:
        self._tensor = tensor
        self._legacy = legacy
        self._device = device

    def __dlpack__(self, **options: Any) -> Any:
        if self._legacy and options:
            raise TypeError("unexpected keyword")
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class Subclass(torch.Tensor):
    pass


ONES: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.ones((2, 3), np.float32),
    "numpy view": lambda: np.ones((4, 3), np.float32)[1:3],
    "numpy subclass": lambda: np.ones((2, 3), np.float32).view(np.matrix),
    "memoryview": lambda: memoryview(np.ones((2, 3), np.float32)),
    "torch": lambda: torch.ones(2, 3),
    "torch with gradient": lambda: torch.ones(2, 3, requires_grad=True),
    "torch subclass": lambda: torch.ones(2, 3).as_subclass(Subclass),
    "torch view": lambda: torch.ones(12)[3:9].view(2, 3),
    "torch parameter": lambda: torch.nn.Parameter(torch.ones(2, 3)),
    "torch transposed twice": lambda: torch.ones(2, 3).t().t(),
    "DLPack": lambda: Export(torch.ones(2, 3)),
    "DLPack legacy": lambda: Export(torch.ones(2, 3), legacy=True),
    "DLPack numpy": lambda: Export(np.ones((2, 3), np.float32)),
}


def values(x: Any) -> Any:
    x = x._tensor if isinstance(x, Export) else x
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


@pytest.mark.parametrize("kind", ONES)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # np.matrix
def test_results_are_written_into_the_array(coll: Handle, kind: str) -> None:
    """Without average and at weight 2 a single rank's result is twice its contribution."""
    x = ONES[kind]()
    outcome = coll.allreduce(x, 2)
    assert outcome.weight == 2
    np.testing.assert_array_equal(values(x), np.full((2, 3), 2, np.float32))


@pytest.mark.parametrize("dtype", CODES)
def test_torch_dtypes(dtype: str) -> None:
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    with handle(x, dtype) as coll:
        assert coll.dtype == dtype
        assert coll.shape == (2, 3)
        coll.allreduce(x)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("dtype", [d for d in CODES if d != "bfloat16"])
def test_numpy_and_dlpack_dtypes(dtype: str) -> None:
    x = np.arange(6, dtype=dtype)
    with handle(x, dtype) as coll:
        coll.allreduce(x)
        coll.allreduce(Export(torch.from_numpy(x)))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_bfloat16_is_uint16_in_numpy_and_known_by_dlpack() -> None:
    tensor = torch.ones(4, dtype=torch.bfloat16)
    with handle(tensor, "bfloat16") as coll:
        coll.allreduce(tensor.view(torch.uint16).numpy())
        coll.allreduce(Export(tensor))
        shared = coll.empty()
        assert shared.dtype == np.uint16
        torch.from_numpy(shared).view(torch.bfloat16).fill_(1)
        coll.allreduce(shared)
    with pytest.raises(TypeError, match="uint16 is not supported"):
        arrays.resolve(np.ones(4, np.uint16))


def test_buffers_of_the_standard_library() -> None:
    x = array.array("d", [1, 2, 3])
    with handle(x, "float64") as coll:
        coll.allreduce(x)
        coll.allreduce(memoryview(bytearray(24)).cast("d"))
    assert list(x) == [1, 2, 3]


class Stream:
    """Says like an array on a GPU in which order it is produced."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.streams: list[Any] = []

    def __dlpack__(self, *, stream: Any, max_version: Any) -> Any:
        self.streams.append(stream)
        return self._tensor.__dlpack__(max_version=max_version)


def read_only() -> Any:
    x = np.ones((2, 3), np.float32)
    x.flags.writeable = False
    return x


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "strided": (lambda: np.ones((2, 6), np.float32)[:, ::2], ValueError, "not C-contiguous"),
    "fortran": (lambda: np.ones((2, 3), np.float32, order="F"), ValueError, "not C-contiguous"),
    "strided torch": (lambda: torch.ones(3, 2).t(), ValueError, "not C-contiguous"),
    "strided buffer": (lambda: memoryview(bytearray(24))[::2], ValueError, "not C-contiguous"),
    "strided DLPack": (lambda: Export(torch.ones(3, 2).t()), ValueError, "not C-contiguous"),
    "read-only": (read_only, ValueError, "read-only"),
    "bytes": (lambda: bytes(24), ValueError, "read-only"),
    "read-only DLPack": (lambda: Export(read_only()), ValueError, "read-only"),
    "shape": (lambda: np.ones(6, np.float32), ValueError, r"shape \(2, 3\)"),
    "transposed shape": (lambda: np.ones((3, 2), np.float32), ValueError, r"\(3, 2\)"),
    "negated view": (lambda: torch._neg_view(torch.ones(2, 3)), ValueError, "pending negation"),
    "torch shape": (lambda: torch.ones(6), ValueError, r"\(6,\)"),
    "larger": (lambda: np.ones((2, 4), np.float32), ValueError, r"\(2, 4\)"),
    "dtype": (lambda: np.ones((2, 3), np.float64), TypeError, "float64"),
    "same width": (lambda: np.ones((2, 3), np.int32), TypeError, "int32"),
    "torch dtype": (lambda: torch.ones(2, 3, dtype=torch.float64), TypeError, "float64"),
    "unknown dtype": (lambda: np.ones((2, 3), np.complex64), TypeError, "complex64"),
    "unsigned": (lambda: np.ones((2, 3), np.uint32), TypeError, "uint32"),
    "bool": (lambda: torch.ones(2, 3, dtype=torch.bool), TypeError, "bool"),
    "unknown DLPack dtype": (
        lambda: Export(torch.ones(2, 3, dtype=torch.complex64)),
        TypeError,
        "DLPack dtype",
    ),
    "byte order": (lambda: np.ones((2, 3), ">f4"), TypeError, "byte order"),
    "sparse": (lambda: torch.ones(2, 3).to_sparse(), TypeError, "layout"),
    "meta device": (lambda: torch.ones(2, 3, device="meta"), TypeError, "on meta, without values"),
    "DLPack GPU": (
        lambda: Export(Stream(torch.ones(2, 3)), device=(2, 1)),
        TypeError,
        "made for arrays in host memory, the array is on GPU 1: copy it to the host",
    ),
    "DLPack ROCm": (
        lambda: Export(None, device=(10, 0)),
        TypeError,
        r"on DLPack device \(10, 0\).*copy it to the host",
    ),
    "list": (lambda: [1.0] * 6, TypeError, "expected a numpy array"),
    "None": (lambda: None, TypeError, "expected a numpy array"),
    "float": (lambda: 1.0, TypeError, "expected a numpy array"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arrays_are_explained_and_harmless(coll: Handle, kind: str) -> None:
    make, error, message = WRONG[kind]
    for call in (coll.allreduce, coll.sync):
        with pytest.raises(error, match=message):
            call(make())
    assert coll.version == 0
    coll.allreduce(np.ones((2, 3), np.float32))
    assert coll.version == 1


@pytest.mark.parametrize("kind", ["strided", "unknown dtype", "list", "sparse"])
def test_wrong_first_contributions(kind: str) -> None:
    make, error, message = WRONG[kind]
    segment = Segment.create({"size": 1, "count": 6})
    with pytest.raises(error, match=message):
        Handle(segment, 0, make())


def test_first_contribution_may_be_read_only() -> None:
    with handle(read_only()) as coll:
        assert coll.shape == (2, 3)


def test_first_contribution_of_another_count() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 3\) has 6 elements, the options' count is 7"):
        Handle(Segment.create({"size": 1, "count": 7}), 0, read_only())


def test_a_tensor_that_was_resized_is_seen(coll: Handle) -> None:
    """A resized tensor is the same object with other memory: forget what was learnt about it."""
    x = torch.ones(2, 3)
    coll.allreduce(x)
    x.resize_(1000, 3)
    with pytest.raises(ValueError, match=r"\(1000, 3\)"):
        coll.allreduce(x)
    x.resize_(2, 3)
    coll.allreduce(x)


def test_a_tensor_with_another_storage_is_seen(coll: Handle) -> None:
    x, other = torch.ones(2, 3), torch.full((2, 3), 10.0)
    coll.allreduce(x, 2)
    before = x.view(2, 3)
    x.set_(other)
    coll.allreduce(x, 2)
    assert (other == 20).all()
    assert (before == 2).all()
    x.set_(torch.ones(3))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        coll.allreduce(x)
    x.data = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(TypeError, match="float64"):
        coll.allreduce(x)


def test_where_a_tensor_is_torch_says_in_c(coll: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its methods take longer; those of a subclass are asked."""

    def asked(*_: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(torch.Tensor, "data_ptr", asked)
    coll.allreduce(torch.ones(2, 3))
    with pytest.raises(AssertionError, match="asked"):
        coll.allreduce(torch.ones(2, 3).as_subclass(Subclass))


def test_a_numpy_array_that_was_reshaped_is_seen(coll: Handle) -> None:
    x = np.ones((2, 3), np.float32)
    coll.allreduce(x)
    x.resize(3, 2)
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        coll.allreduce(x)


def test_a_tensor_whose_memory_was_freed_is_refused(coll: Handle) -> None:
    for x in (torch.ones(2, 3), torch.ones(2, 3).as_subclass(Subclass)):
        x.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="has no memory"):
            coll.allreduce(x)
        with pytest.raises(ValueError, match="has no memory"):
            handle(x)
    assert coll.version == 0


def test_numpy_does_not_describe_the_array(coll: Handle) -> None:
    """The buffer protocol, which takes longer, would hold the array once more."""
    x = np.ones((2, 3), np.float32)
    held = sys.getrefcount(x)
    request = coll.iallreduce(x)
    assert sys.getrefcount(x) == held + 2  # it is kept, and made writeable again
    request.wait()
    assert sys.getrefcount(x) == held


def test_a_numpy_array_that_became_another_is_seen(coll: Handle) -> None:
    """A changed array is the same object: forget what was learnt about it."""
    x = np.ones((2, 3), np.float32)
    coll.allreduce(x, 2)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        coll.allreduce(x)
    x.flags.writeable = True
    x.dtype = np.int32  # type: ignore[misc]
    with pytest.raises(TypeError, match="int32"):
        coll.allreduce(x)
    x.dtype = np.dtype(">f4")  # type: ignore[misc]
    with pytest.raises(TypeError, match="byte order"):
        coll.allreduce(x)
    x.dtype = np.float32  # type: ignore[misc]
    coll.allreduce(x, 2)
    assert (x == 4).all()
    x.resize((1000, 3), refcheck=False)  # other memory
    x.resize((2, 3), refcheck=False)
    x.fill(1)
    coll.allreduce(x, 2)
    assert (x == 2).all()


def test_both_of_numpys_integers_of_64_bits() -> None:
    with handle(np.ones(3, np.int64), "int64") as coll:
        for kind in (np.dtype("l"), np.dtype("q")):
            x = np.ones(3, kind)
            coll.allreduce(x, 2)
            assert x.tolist() == [2, 2, 2]
        for kind in (np.dtype("M8[s]"), np.dtype("m8[s]"), np.dtype([("a", "i8")])):
            with pytest.raises((TypeError, ValueError), match=r"not supported|handle was made for"):
                coll.allreduce(np.zeros(3, kind))


@pytest.mark.parametrize(
    ("array", "number", "order", "contiguous", "writeable"),
    [
        (np.ones((2, 3), np.float32), 11, "=", True, True),
        (np.ones((4, 3), np.float64)[1:], 12, "=", True, True),
        (np.ones((2, 6), np.float16)[:, ::2], 23, "=", False, True),
        (np.ones((2, 3), ">i4"), 5, ">", True, True),
        (read_only(), 11, "=", True, False),
    ],
)
def test_numpy_arrays_are_as_the_bindings_read_them(
    array: Any, number: int, order: str, contiguous: bool, writeable: bool
) -> None:
    """Where they were not, arrays would be asked by the buffer protocol, which takes longer."""
    assert ndarray_fields(array) == (
        array.ctypes.data,
        2,
        array.shape,
        number,
        order,
        contiguous,
        writeable,
    )


def test_fields_of_other_things() -> None:
    with pytest.raises(TypeError, match="numpy array of two dimensions, got list"):
        ndarray_fields([])
    with pytest.raises(TypeError, match="two dimensions"):
        ndarray_fields(np.ones(3))


def test_arrays_without_elements() -> None:
    transposed = torch.ones(3, 0).t()
    for x in (np.ones((0, 3), np.float32), torch.ones(0, 3), transposed, Export(torch.ones(0, 3))):
        with handle(np.ones((0, 3), np.float32)) as coll:
            coll.allreduce(x)


def test_arrays_of_many_dimensions() -> None:
    shape = (1,) * 9 + (2,)
    with handle(np.ones(shape, np.float32)) as coll:
        coll.allreduce(np.ones(shape, np.float32))
        coll.allreduce(torch.ones(shape))
        with pytest.raises(ValueError, match="shape"):
            coll.allreduce(np.ones((1,) * 8 + (2,), np.float32))


def test_zero_dimensions() -> None:
    with handle(np.float32(3).reshape(())) as coll:
        assert coll.shape == ()
        x = np.array(3, np.float32)
        coll.allreduce(x)
        coll.allreduce(torch.tensor(3.0))


# ---- empty() -------------------------------------------------------------------------------------


def test_empty_is_the_ranks_array_in_the_segment(coll: Handle) -> None:
    x = coll.empty()
    assert x.shape == (2, 3)
    assert x.dtype == np.float32
    assert x.ctypes.data % 64 == 0
    x[:] = 3
    tensor = torch.from_numpy(x)
    assert tensor.data_ptr() == x.ctypes.data
    coll.allreduce(tensor)
    assert (x == 3).all()


def test_only_one_empty_array_lives_at_a_time(coll: Handle) -> None:
    x = coll.empty()
    view = torch.from_numpy(x[1:])
    with pytest.raises(BufferError, match="still alive"):
        coll.empty()
    del x
    with pytest.raises(BufferError, match="still alive"):
        coll.empty()
    del view
    assert coll.empty().shape == (2, 3)


def test_an_empty_array_outlives_everything() -> None:
    coll = handle(np.zeros(100_000, np.float32))
    x = coll.empty()
    x[:] = 7
    coll.close()
    del coll
    assert (x == 7).all()
    x += 1
    assert x.sum() == 800_000
