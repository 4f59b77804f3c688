"""Arrays on GPUs: what is read of them without touching their memory."""

from typing import Any

import pytest
import torch

from wagma.collectives import arrays


class OnGPU:
    """Shows an array that lies nowhere, as CuPy does."""

    def __init__(self, device: tuple[int, int] = (2, 1), **changed: Any) -> None:
        self._device = device
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (4096, False),
            "strides": None,
            "stream": 1,
            **changed,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def test_place_and_form_are_read() -> None:
    found = arrays.resolve(OnGPU())
    assert (found.address, found.dtype.name, found.shape, found.gpu) == (4096, "float32", (2, 3), 1)


@pytest.mark.parametrize(("given", "used"), [(None, 1), (1, 1), (2, 2), (0x7F00, 0x7F00)], ids=str)
def test_the_stream_is_that_of_the_caller(given: int | None, used: int) -> None:
    """The legacy default stream waits for all others that have not chosen otherwise."""
    assert arrays.resolve(OnGPU(stream=given)).stream == used


@pytest.mark.parametrize(("kind", "gpu"), [(2, 1), (13, 1), (3, None)], ids=str)
def test_managed_memory_is_of_the_gpu_and_pinned_memory_of_the_host(kind: int, gpu: Any) -> None:
    assert arrays.resolve(OnGPU((kind, 1))).gpu == gpu


def test_bfloat16_of_cupy_has_no_type_of_its_own() -> None:
    assert arrays.resolve(OnGPU(typestr="<V2")).dtype.name == "bfloat16"


def test_bfloat16_travels_as_uint16_where_the_handle_is_made_for_it() -> None:
    bits = OnGPU(typestr="<u2")
    bfloat16 = arrays.DTYPES["bfloat16"]
    assert arrays.resolve(bits, expected=bfloat16).dtype is bfloat16
    with pytest.raises(TypeError, match="uint16 is not supported"):
        arrays.resolve(bits)


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"strides": (4, 8)}, ValueError, "not C-contiguous"),
        ({"data": (4096, True)}, ValueError, "read-only"),
        ({"typestr": "<c8"}, TypeError, "complex64 is not supported"),
        ({"typestr": ">f4"}, TypeError, "byte order"),
        ({"device": (10, 0)}, TypeError, r"DLPack device \(10, 0\).*NVIDIA"),
    ],
)
def test_wrong_arrays_are_explained(
    changed: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        arrays.resolve(OnGPU(**changed))


def test_rows_of_one_column_are_contiguous() -> None:
    assert arrays.resolve(OnGPU(shape=(2, 1), strides=(4, 400))).shape == (2, 1)


def test_an_array_has_to_tell_its_gpu() -> None:
    class Nameless:
        __cuda_array_interface__ = OnGPU().__cuda_array_interface__

    with pytest.raises(TypeError, match=r"no __dlpack_device__.*cupy\.asarray"):
        arrays.resolve(Nameless())


class Producer:
    """Has nothing but DLPack, of the first version."""

    def __init__(self) -> None:
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> Any:
        self.streams.append(stream)
        return torch.ones(3, dtype=torch.bfloat16).__dlpack__()


def test_a_producer_is_told_the_stream_on_which_its_array_is_used() -> None:
    x = Producer()
    found = arrays.resolve(x)
    assert (found.dtype.name, found.gpu, found.stream) == ("bfloat16", 0, 1)
    assert x.streams == [1]
