"""A run that was saved and loaded on every rank goes on as if nothing had been, to the bit."""

import io
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import pytest
import torch
from tiny import (
    COMM,
    ON_TIME,
    OPTIMIZERS,
    RANK,
    SIZE,
    batch,
    build_model,
    mostly_long,
    on_all_ranks,
    on_time,
    step_on,
    values,
)

import wagma
from wagma.algorithms import Algorithm
from wagma.collectives import PartialAllreduce

pytestmark = pytest.mark.mpi


def run(
    make: Callable[..., Algorithm],
    inner: str,
    first: int,
    last: int,
    saved: bytes | None = None,
    synchronize_at: int | None = None,
    save_at: tuple[int, ...] = (),
) -> list[tuple[bytes, torch.Tensor]]:
    """Versions `first` to `last`: checkpoints of this rank on the way and in the end, and its model
    there.
    """

    def play(
        meet: Callable[[], None],
    ) -> tuple[wagma.DistributedOptimizer, list[tuple[bytes, torch.Tensor]]]:
        def save() -> tuple[bytes, torch.Tensor]:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            return file.getvalue(), values(model)

        checkpoints = []
        model = build_model(seed=first)
        optimizer = wagma.DistributedOptimizer(OPTIMIZERS[inner](model.parameters()), make(COMM))
        with optimizer:
            if saved is not None:
                load(model, optimizer, saved)
            assert optimizer.version == first
            while optimizer.version < last:
                if optimizer.version == synchronize_at:
                    optimizer.synchronize()
                    continue
                if optimizer.version in save_at:
                    checkpoints.append(save())
                meet()
                step_on(model, optimizer, batch(optimizer.version, RANK))
            checkpoints.append(save())
        return optimizer, checkpoints

    return on_time(play)


def load(model: torch.nn.Module, optimizer: wagma.DistributedOptimizer, checkpoint: bytes) -> None:
    """In any order."""
    saved = torch.load(io.BytesIO(checkpoint), weights_only=True)
    parts = [(optimizer, saved["optimizer"]), (model, saved["model"])]
    for part, state in reversed(parts) if saved["optimizer"]["wagma"]["version"] % 2 else parts:
        part.load_state_dict(state)


# test_checkpointer_algorithms.py resumes the other kinds from files.
@pytest.mark.parametrize("name", mostly_long(ON_TIME, ("AllreduceSGD", "KSync")))
def test_two_halves_are_the_whole(name: str) -> None:
    ((_, whole),) = run(ON_TIME[name], "Adam", 0, 12)  # it saves nothing on the way
    checkpoints = run(ON_TIME[name], "Adam", 0, 7, save_at=(4,))
    for version, (saved, half) in zip((4, 7), checkpoints, strict=True):
        ((_, resumed),) = run(ON_TIME[name], "Adam", version, 12, saved)
        assert torch.equal(resumed, whole), version
        assert not torch.equal(half, whole), version


@pytest.mark.parametrize("overlap", [False, True])
def test_two_halves_of_diloco_in_groups(overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a period and at its begin, with an average on its way; groups change with the period."""
    make_collective = partialmethod(PartialAllreduce.__init__, grace=20.0)
    monkeypatch.setattr(PartialAllreduce, "__init__", make_collective)

    def make(comm: Any) -> Algorithm:
        return wagma.DiLoCo(comm, 3, overlap=overlap, group_size=max(1, SIZE // 2))

    ((_, whole),) = run(make, "SGD", 0, 15)
    checkpoints = run(make, "SGD", 0, 9, save_at=(4, 8))
    for version, (saved, _) in zip((4, 8, 9), checkpoints, strict=True):
        ((_, resumed),) = run(make, "SGD", version, 15, saved)
        assert torch.equal(resumed, whole), version


def test_saved_after_synchronize_by_rank_0_for_all() -> None:
    """Momentum is each rank's own: with an optimizer without state one file is enough."""
    plain = {"plain": lambda p: torch.optim.SGD(p, lr=0.1)}
    OPTIMIZERS.update(plain)

    ((_, whole),) = run(ON_TIME["WAGMA"], "plain", 0, 12, synchronize_at=5)
    ((saved, model),) = run(ON_TIME["WAGMA"], "plain", 0, 6, synchronize_at=5)
    assert len(set(on_all_ranks(model))) == 1
    ((_, resumed),) = run(ON_TIME["WAGMA"], "plain", 6, 12, COMM.bcast(saved))
    assert torch.equal(resumed, whole)


class Counting(wagma.AllreduceSGD):
    """An algorithm with a state of its own."""

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.count = torch.zeros(1)

    def after_step(self) -> None:
        self.count += 1 + RANK

    def state(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_the_state_of_an_algorithm_is_loaded_by_its_like() -> None:
    ((content, _),) = run(Counting, "SGD", 0, 3)
    saved = torch.load(io.BytesIO(content), weights_only=True)
    model = build_model()
    algorithm = Counting(COMM)
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        optimizer.load_state_dict(saved["optimizer"])
        assert algorithm.count.tolist() == [3 * (1 + RANK)]
    other = OPTIMIZERS["SGD"](build_model().parameters())
    with wagma.DistributedOptimizer(other, wagma.WAGMA(COMM)) as optimizer:
        optimizer.load_state_dict(saved["optimizer"])
        assert optimizer.version == 3
    OPTIMIZERS["SGD"](build_model().parameters()).load_state_dict(saved["optimizer"])


@pytest.mark.mpi(min_size=2)
def test_a_state_that_does_not_fit_is_refused_on_every_rank() -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer:
        state = optimizer.state_dict()
        if RANK == SIZE - 1:
            state["param_groups"] = state["param_groups"] * 2
        with pytest.raises(ValueError, match="different number of parameter groups"):
            optimizer.load_state_dict(state)
