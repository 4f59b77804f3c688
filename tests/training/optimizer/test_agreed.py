"""Numbers that are compared along with an average."""

from collections.abc import Sequence

import pytest
import torch

from wagma.training.agreed import Agreed

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def mean_of(numbers: Sequence[int], dtype: torch.dtype) -> Agreed:
    memory = torch.empty(Agreed.SIZE, dtype=dtype)
    agreed, total = Agreed(memory), torch.zeros(Agreed.SIZE, dtype=dtype)
    for number in numbers:
        agreed.write(number)
        total += memory
    memory.copy_(total / len(numbers))
    return agreed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [0, 1, 1000, -1, -(2**31), 2**31 - 1, 2**40 + 3])
def test_one_number(number: int, dtype: torch.dtype) -> None:
    agreed = mean_of([number] * 300, dtype)
    assert not Agreed.differs(agreed._memory)
    assert agreed.is_own()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", [0, 6, 8, 5, 7 + 2**31, -8])
def test_another_of_one_rank(other: int, dtype: torch.dtype) -> None:
    agreed = mean_of([7] * 255 + [other], dtype)
    assert Agreed.differs(agreed._memory)
    assert not agreed.is_own()


def test_another_than_that_of_all_that_count() -> None:
    memory = torch.empty(Agreed.SIZE)
    agreed = Agreed(memory)
    agreed.write(3)
    kept = memory.clone()
    agreed.write(4)
    memory.copy_(kept)
    assert not Agreed.differs(agreed._memory)
    assert not agreed.is_own()
