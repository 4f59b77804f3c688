"""The loop of Cannikin's docstring, as it stands."""

import inspect
import re
import textwrap
from typing import Any

import pytest
import torch
from mpi4py import MPI
from torch.utils.data import DataLoader, Dataset

import wagma

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
EPOCHS = 3


class Numbers(Dataset[Any]):
    """Samples whose targets are their indices; not as many as steps can share evenly."""

    def __len__(self) -> int:
        return 7 * 16 * COMM.size + 5

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((3,), index / len(self)), torch.tensor([index])


def test_each_sample_is_used_once_in_an_epoch() -> None:
    used: dict[int, list[int]] = {epoch: [] for epoch in range(EPOCHS)}

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        used[names["epoch"]] += targets[:, 0].tolist()
        return (outputs - targets / len(data)).square().mean()

    lines = inspect.cleandoc(wagma.Cannikin.__doc__ or "")
    found = re.search(r"::\n\n((?:    .*\n|\n)+)", lines)
    assert found is not None
    loop = textwrap.dedent(found[1])
    assert "replan()" in loop
    assert "wagma.Cannikin(comm, 256)" in loop
    total, data = 16 * COMM.size, Numbers()
    model = torch.nn.Linear(3, 1)
    names: dict[str, Any] = {
        "DataLoader": DataLoader,
        "comm": COMM,
        "data": data,
        "epochs": EPOCHS,
        "inner": torch.optim.SGD(model.parameters(), lr=0.01),
        "loss": loss,
        "model": model,
        "rank": COMM.rank,
        "wagma": wagma,
    }
    exec(loop.replace("256", str(total)), names)
    for indices in used.values():
        everywhere = sorted(index for own in COMM.allgather(indices) for index in own)
        assert everywhere == list(range(len(data)))
    plans = names["algorithm"].plans
    assert [plan.total_batch for plan in plans] == [total] * (EPOCHS + 1)
    assert COMM.size == 1 or plans[2].predicted is not None
    assert len(set(COMM.allgather(str(plans)))) == 1
