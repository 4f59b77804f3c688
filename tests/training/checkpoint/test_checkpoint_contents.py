"""Load what a checkpoint holds as it was, without running code; refuse to save anything else."""

import pickle
import struct
import zlib
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wagma.checkpoint.asynchronous import Copies
from wagma.checkpoint.contents import compact, snapshot
from wagma.checkpoint.files import Checksum, DamagedError, read_data, write_data

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(),
    st.binary(),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.sets(st.integers()),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner),
        st.dictionaries(st.text(), inner).map(OrderedDict),
    ),
    max_leaves=12,
)
Pair = namedtuple("Pair", "a b")


class Dict(dict[str, int]):
    pass


def checked(content: bytes) -> tuple[int, str]:
    """Size and checksum, computed slowly."""
    sums = b"".join(
        (sum(struct.unpack("<512Q", page.ljust(4096, b"\0"))) % 2**64).to_bytes(8, "little")
        for page in (content[i : i + 4096] for i in range(0, len(content), 4096))
    )
    return len(content), f"pages4096-crc32:{zlib.crc32(sums):08x}"


def there_and_back(value: Any, tmp_path: Path) -> Any:
    state = snapshot({"x": value}, compact)
    size, checksum = write_data(tmp_path / "f", state)
    assert checked((tmp_path / "f").read_bytes()) == (size, checksum)
    return read_data(tmp_path / "f", size, checksum)["x"]


@settings(max_examples=30, deadline=None)
@given(value=TREES)
def test_plain_values_come_back(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    back = there_and_back(value, tmp_path_factory.getbasetemp())
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3),
        np.zeros((0, 3)),
        np.asfortranarray(np.ones((2, 3), np.float16)),
        np.array(["a", "bc"]),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        np.float32(1.5),
        np.bool_(True),
    ],
)
def test_arrays_and_scalars_of_numpy_come_back(value: Any, tmp_path: Path) -> None:
    back = there_and_back(value, tmp_path)
    assert back.dtype == value.dtype
    assert np.array_equal(back, value)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(3),
        torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)),
        torch.eye(3).to_sparse(),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(3).expand(2, 3),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(()),
        torch.zeros(0, 3),
    ],
)
def test_tensors_come_back(value: torch.Tensor, tmp_path: Path) -> None:
    back = there_and_back(value, tmp_path)
    assert back.dtype == value.dtype
    assert torch.equal(back.to_dense(), value.detach().to_dense())
    copied = Copies().copy({"x": value})["x"]
    assert torch.equal(copied.to_dense(), value.detach().to_dense())


def test_other_types_that_torch_knows_come_back(tmp_path: Path) -> None:
    value = [torch.Size([1]), torch.float32, torch.device("cpu"), Counter("aab"), bytearray(b"x")]
    assert there_and_back(value, tmp_path) == value


def test_everything_that_cannot_be_read_back_is_named_with_its_path() -> None:
    loop: list[Any] = []
    loop.append(loop)
    state = {
        "extra": {
            "schedule": {"f": print, "list": [0, Pair(1, 2)]},
            "mine": Dict(a=1),
            "objects": np.array([None]),
            "frozen": {frozenset({1}): 1},
            "loop": loop,
            "fine": 1,
        }
    }
    with pytest.raises(TypeError) as caught:
        snapshot(state, compact)
    text = str(caught.value)
    for named in (
        "extra['schedule']['f'] is a builtins.builtin_function_or_method",
        "extra['schedule']['list'][1] is a test_checkpoint_contents.Pair",
        "extra['mine'] is a test_checkpoint_contents.Dict",
        "extra['objects'] is a numpy.ndarray",
        "extra['frozen'], key frozenset({1}) is a builtins.frozenset",
        "extra['loop'][0] contains itself",
        "save numbers, texts",
    ):
        assert named in text
    assert "fine" not in text


def test_a_view_of_a_large_tensor_is_written_alone(tmp_path: Path) -> None:
    state = snapshot({"x": torch.ones(1_000_000)[:3]}, compact)
    size, _ = write_data(tmp_path / "f", state)
    assert size < 10_000


def test_copies_hold_the_values_of_their_moment_and_use_their_memory_again() -> None:
    copies = Copies()
    tensor, numbers, raw = torch.ones(3), [1], bytearray(b"1")
    first = copies.copy({"t": tensor, "n": numbers, "raw": raw})
    tensor.add_(1)
    numbers.append(2)
    raw[:] = b"2"
    assert first["raw"] == b"1"
    assert first["t"].tolist() == [1, 1, 1]
    assert first["n"] == [1]
    second = copies.copy({"t": tensor, "n": numbers})
    assert second["t"] is first["t"]
    assert second["t"].tolist() == [2, 2, 2]
    third = copies.copy({"t": torch.ones(2, dtype=torch.float64)})  # another shape
    assert third["t"].tolist() == [1, 1]
    assert copies.copy({"a": tensor, "b": tensor.t()})["a"].tolist() == [2, 2, 2]


class Evil:
    ran = False

    def __reduce__(self) -> Any:
        return setattr, (Evil, "ran", True)


def test_pickled_code_never_runs(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for save in (torch.save, lambda value, file: pickle.dump(value, file)):
        with path.open("wb") as file:
            save({"x": Evil()}, file)
        content = path.read_bytes()
        with pytest.raises(DamagedError, match="cannot be read"):
            read_data(path, *checked(content))
        assert not Evil.ran
    with path.open("rb") as file:
        pickle.load(file)
    assert Evil.ran  # elsewhere it would have


def test_a_file_that_is_not_what_was_written_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "f"
    size, checksum = write_data(path, {"x": torch.arange(100_000)})
    content = path.read_bytes()
    for at in (0, size // 2, size - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(DamagedError, match="has checksum"):
            read_data(path, size, checksum)
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedError, match=f"has {size - 1} bytes, and {size} were written"):
        read_data(path, size, checksum)
    path.unlink()
    with pytest.raises(DamagedError, match="is missing"):
        read_data(path, size, checksum)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9000), max_size=5))
def test_a_checksum_does_not_depend_on_the_pieces(pieces: list[bytes]) -> None:
    checksum = Checksum()
    for piece in pieces:
        checksum.update(memoryview(piece))
    assert (checksum.bytes, checksum.text()) == checked(b"".join(pieces))


def test_a_checksum_sees_pages_in_another_order() -> None:
    texts = set()
    for content in (b"a" * 4096 + b"b" * 4096, b"b" * 4096 + b"a" * 4096):
        checksum = Checksum()
        checksum.update(memoryview(content))
        texts.add(checksum.text())
    assert len(texts) == 2


def test_torchs_own_option_is_as_before(tmp_path: Path) -> None:
    for before in (True, False):
        torch.serialization.set_crc32_options(before)
        try:
            write_data(tmp_path / "f", {"x": 1})
            assert torch.serialization.get_crc32_options() is before
        finally:
            torch.serialization.set_crc32_options(True)
