"""A training of one rank that saves, for tests of what lies in the folder."""

import random
from pathlib import Path
from typing import Any

import torch

import wagma
from wagma.checkpoint import Checkpointer


class Counted:
    """An object with a state."""

    def __init__(self, count: Any = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Alone:
    """One rank: a model of one number that is the version, and its Checkpointer."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        inner = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.opt = wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(), model=self.model)
        self.counted = Counted()
        self.saver = Checkpointer(
            folder, self.opt, model=self.model, **{"extra": {"counted": self.counted}, **options}
        )

    def step(self) -> None:
        self.opt.zero_grad()
        (-self.model.weight).sum().backward()
        self.opt.step()
        self.counted.count += 1

    @property
    def value(self) -> float:
        return float(self.model.weight.detach())

    def __enter__(self) -> "Alone":
        return self

    def __exit__(self, *error: Any) -> None:
        self.opt.__exit__(*error)
        self.saver.close()


def loaded(folder: Path) -> int | None:
    """The version that a new process would continue at, None: it would begin anew."""
    random.random()
    with Alone(folder) as alone:
        if not alone.saver.load():
            assert alone.value == alone.counted.count == 0
            return None
        assert alone.value == alone.counted.count
        return int(alone.value)


def saved_at(folder: Path, *versions: int, **options: Any) -> None:
    """Save in one run."""
    with Alone(folder, **options) as alone:
        while alone.opt.version < max(versions):
            alone.step()
            if alone.opt.version in versions:
                alone.saver.save()
