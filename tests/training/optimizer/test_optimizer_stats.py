"""Check what DistributedOptimizer.stats() counts."""

import csv
import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.training.counters import Counters

KEYS = {
    "version",
    "steps",
    "passive_steps",
    "averages",
    "late",
    "late_share",
    "skipped",
    "staleness_mean",
    "waited_seconds",
    "waited_last_seconds",
}


def make(algorithm: Any = wagma.WAGMA) -> tuple[torch.nn.Parameter, wagma.DistributedOptimizer]:
    parameter = torch.nn.Parameter(torch.ones(3))
    inner = torch.optim.LBFGS([parameter], max_iter=3)
    return parameter, wagma.DistributedOptimizer(inner, algorithm(MPI.COMM_SELF))


def evaluate(parameter: torch.nn.Parameter) -> Any:
    def closure() -> torch.Tensor:
        parameter.grad = None
        loss = parameter.pow(4).sum()
        loss.backward()
        return loss

    return closure


def test_every_evaluation_of_a_closure_is_an_average_of_gradients() -> None:
    parameter, optimizer = make(wagma.AllreduceSGD)
    for _ in range(2):
        optimizer.step(evaluate(parameter))
    stats = optimizer.stats()
    assert stats["steps"] == 2
    assert stats["averages"] == stats["version"] > 2
    optimizer.close()


def test_numbers_for_a_file() -> None:
    parameter, optimizer = make()
    assert set(optimizer.stats()) == KEYS
    assert not any(optimizer.stats().values())
    file = io.StringIO()
    writer = csv.DictWriter(file, optimizer.stats())
    for _ in range(3):
        optimizer.step(evaluate(parameter))
        writer.writerow(optimizer.stats())
    optimizer.synchronize()
    stats = optimizer.stats()
    assert [row.split(",")[0] for row in file.getvalue().splitlines()] == ["1", "2", "3"]
    assert (stats["steps"], stats["averages"], stats["version"]) == (3, 4, 4)
    assert all(type(value) in (int, float) for value in stats.values())
    optimizer.close()


def outcome(**values: Any) -> Any:
    plain = {"late": False, "skipped": 0, "waited": 0.0, "versions": (), "contributors": ()}
    return SimpleNamespace(**{**plain, **values})


def test_figures_of_known_outcomes() -> None:
    counters = Counters()
    seen = [
        outcome(versions=(4, 4, 2), waited=0.5),
        outcome(versions=(5, 1), late=True, waited=0.25, skipped=3),
        outcome(late=True),
    ]
    for one in seen:
        counters.see(one)
        counters.see(one)  # nothing is counted twice
    counters.see(None)
    figures = counters.as_dict()
    assert figures["averages"] == 3
    assert (figures["late"], figures["late_share"]) == (2, pytest.approx(2 / 3))
    assert figures["skipped"] == 3
    assert figures["staleness_mean"] == pytest.approx((0 + 0 + 2 + 0 + 4) / 5)
    assert (figures["waited_seconds"], figures["waited_last_seconds"]) == (0.75, 0.0)
