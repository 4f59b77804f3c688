"""Ranks with unequally many batches."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from stalls import patient_creation, soon  # noqa: F401 (a fixture)
from tiny import (
    ALGORITHMS,
    COMM,
    EACH_KIND,
    ON_TIME,
    OPTIMIZERS,
    RANK,
    SIZE,
    batch,
    build_model,
    mostly_long,
    on_all_ranks,
    step_on,
    values,
)

import wagma
from wagma.algorithms import Algorithm
from wagma.collectives import MismatchError, PeerError, StallError

pytestmark = pytest.mark.mpi

BATCHES = [3, 0, 7, 5, 1, 2, 4, 6][:SIZE]  # of each rank
RATE = 0.25
EVERY_STEP = partial(wagma.LocalSGD, sync_period=1)


def gradient(rank: int, step: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng((rank, step)).normal(size=(3, 5))


def train(optimizer: wagma.DistributedOptimizer, parameter: torch.Tensor) -> None:
    for step in range(BATCHES[RANK]):
        parameter.grad = torch.from_numpy(gradient(RANK, step))
        optimizer.step()


@pytest.mark.parametrize("make", [wagma.AllreduceSGD, ON_TIME["WAGMA-all"], EVERY_STEP])
def test_values_are_those_of_numpy(make: Callable[..., Algorithm]) -> None:
    """Gradients are averaged over the ranks that have one, models over all ranks."""
    parameter = torch.nn.Parameter(torch.ones(3, 5, dtype=torch.float64))
    inner = torch.optim.SGD([parameter], lr=RATE, momentum=0.5)
    with wagma.DistributedOptimizer(inner, make(COMM)) as optimizer:
        with optimizer.join(BATCHES[RANK]) as last:
            train(optimizer, parameter)
        assert optimizer.version == last == max(BATCHES)
        assert optimizer.stats()["steps"] == BATCHES[RANK]
        assert optimizer.stats()["passive_steps"] == last - BATCHES[RANK]

    models = np.ones((SIZE, 3, 5))
    momenta = np.zeros((SIZE, 3, 5))
    for step in range(max(BATCHES)):
        active = [rank for rank in range(SIZE) if step < BATCHES[rank]]
        if make is wagma.AllreduceSGD:
            mean = np.mean([gradient(rank, step) for rank in active], axis=0)
            momenta = 0.5 * momenta + mean
            models = models - RATE * momenta
        else:
            for rank in active:
                momenta[rank] = 0.5 * momenta[rank] + gradient(rank, step)
                models[rank] -= RATE * momenta[rank]
            models[:] = models.mean(axis=0)
    np.testing.assert_allclose(parameter.detach(), models[RANK], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", mostly_long(ALGORITHMS, EACH_KIND))
def test_all_ranks_end_at_one_version_and_go_on(name: str) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM)) as optimizer:
        for _ in range(2):  # two epochs
            with optimizer.join(BATCHES[RANK]) as last:
                for step in range(BATCHES[RANK]):
                    if optimizer.version >= last:
                        break
                    step_on(model, optimizer, batch(step, RANK))
            assert set(COMM.allgather(optimizer.version)) == {last}
        optimizer.synchronize()
        assert len(set(on_all_ranks(values(model)))) == 1


@pytest.mark.parametrize("missed", ["once", "fast-forward"])
def test_versions_that_are_jumped_over(missed: str) -> None:
    """The slow rank has most batches, and calls fewer versions than it has batches."""
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = wagma.WAGMA(COMM, sync_period=5, grace=0.0, missed=missed)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        batches = 14 if RANK == SIZE - 1 else 12
        with optimizer.join(batches) as last:
            assert last == 14
            for step in range(batches):
                if optimizer.version >= last:
                    break
                time.sleep(0.01 if RANK == SIZE - 1 else 0.0005)
                step_on(model, optimizer, batch(step, RANK))
        stats = optimizer.stats()
        assert optimizer.version == last == stats["averages"] + stats["skipped"]
        if missed == "once":
            assert stats["skipped"] == 0
        COMM.Barrier()


@pytest.mark.mpi(min_size=2)
def test_after_an_exception_no_step_is_made() -> None:
    class LocalError(Exception):
        pass

    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    expected = LocalError if RANK == 1 else PeerError
    optimizer = wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM))
    with pytest.raises(expected), optimizer, optimizer.join(6 if RANK == 0 else 4):
        for step in range(6):
            if RANK == 1 and step == 2:
                raise LocalError
            step_on(model, optimizer, batch(step, RANK))
    if RANK == 1:
        assert optimizer.stats()["passive_steps"] == 0
        assert optimizer.stats()["steps"] == 2


@pytest.mark.parametrize(
    ("steps", "error", "words"),
    [
        (2.5, TypeError, "steps=2.5 must be an int"),
        (True, TypeError, "steps=True must be an int"),
        (-1, ValueError, "steps=-1 must be 0 or more"),
    ],
)
def test_wrong_steps_are_refused_on_every_rank(
    steps: float, error: type[Exception], words: str
) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM)) as optimizer:
        told: Any = steps if RANK == SIZE - 1 else 3
        with pytest.raises(error, match=words), optimizer.join(told):
            pytest.fail("the block is not entered")
        with optimizer.join(1):  # it can still be used
            step_on(model, optimizer, batch(0, RANK))


def test_steps_of_unknown_cost_are_refused() -> None:
    model = build_model()
    inner = OPTIMIZERS["LBFGS"](model.parameters())
    with (
        wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as optimizer,
        pytest.raises(ValueError, match="LBFGS evaluates a closure"),
        optimizer.join(3),
    ):
        pytest.fail("the block is not entered")


def test_more_steps_than_told_are_refused() -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM)) as optimizer:
        with optimizer.join(2):
            for step in range(2):
                step_on(model, optimizer, batch(step, RANK))
            with pytest.raises(RuntimeError, match=r"whose ranks end at 2: pass join\(\)"):
                optimizer.step()
            with pytest.raises(RuntimeError, match=r"synchronize\(\) inside join\(\)"):
                optimizer.synchronize()
            with pytest.raises(RuntimeError, match=r"join\(\) inside join\(\)"), optimizer.join(1):
                pass
        optimizer.step()
        assert optimizer.version == 3


@pytest.mark.mpi(min_size=2)
def test_who_waits_for_nobody_keeps_its_pace() -> None:
    """Otherwise it would be in the last version at once, and all others late in each."""
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = wagma.WAGMA(COMM, sync_period=None, grace=0.0)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        steps = 4 if RANK == 0 else 10
        with optimizer.join(steps):
            for step in range(steps):
                time.sleep(0.02)
                step_on(model, optimizer, batch(step, RANK))
            end = time.perf_counter()
        seconds = time.perf_counter() - end
        COMM.Barrier()
        assert seconds >= 0.02 * 6 or RANK > 0


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["AllreduceSGD", "WAGMA", "EagerSGD-solo"])
def test_uneven_data_without_it_names_it(name: str) -> None:
    """Rank 0 ends its training, while the others still have data."""
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    optimizer = wagma.DistributedOptimizer(inner, ALGORITHMS[name](COMM))
    with pytest.raises((MismatchError, PeerError)) as caught, optimizer:
        while optimizer.version < (2 if RANK == 0 else 5):
            if optimizer.version <= 2:  # a late rank jumps with EagerSGD: not to the last version
                COMM.Barrier()
            step_on(model, optimizer, batch(optimizer.version, RANK))
        if RANK == 0:
            COMM.Barrier()
        optimizer.synchronize()
    text = str(caught.value)
    assert "with opt.join(len(loader))" in text
    if isinstance(caught.value, MismatchError) and RANK == 0:
        assert not re.search(r"rank (\d+) called .* rank \1,", text), "a rank differs from another"
    COMM.Barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", ["LocalSGD", "DiLoCo", "overlap", "groups"])
@pytest.mark.parametrize("period", [None, 4], ids=["synchronize", "period"])
def test_local_steps_that_differ_in_number_are_noticed(period: int | None, kind: str) -> None:
    """They call no collective: the counters of what averages are equal, the versions are not."""
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    if kind != "LocalSGD" and period is not None:
        pytest.skip("the ranks call different things, which the collective notices")
    made = {
        "LocalSGD": lambda: wagma.LocalSGD(COMM, sync_period=period),
        "DiLoCo": lambda: wagma.DiLoCo(COMM, period),
        "overlap": lambda: wagma.DiLoCo(COMM, period, overlap=True),
        "groups": lambda: wagma.DiLoCo(COMM, period, group_size=1),
    }
    optimizer = wagma.DistributedOptimizer(inner, made[kind]())
    with pytest.raises(MismatchError) as caught, optimizer:
        for step in range(2 if RANK == 0 else 3 if period is None else 4):
            step_on(model, optimizer, batch(step, RANK))
        optimizer.synchronize()
    text = str(caught.value)
    own = 2 if RANK == 0 else 3
    assert f"of different versions, rank {RANK} that of version {own}: " in text
    assert "with opt.join(len(loader))" in text
    COMM.Barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("patient_creation")
def test_a_stall_names_it() -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = wagma.AllreduceSGD(COMM, timeout=soon(COMM))
    optimizer = wagma.DistributedOptimizer(inner, algorithm)
    if RANK > 0:
        with pytest.raises((StallError, PeerError), match=r"opt\.join"), optimizer:
            step_on(model, optimizer, batch(0, RANK))
    COMM.Barrier()
    with suppress(PeerError):
        optimizer.close()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", mostly_long(["AllreduceSGD", "DPSGD"], ["AllreduceSGD"]))
@pytest.mark.parametrize("joins", [False, True])
def test_a_warning_names_it(
    joins: bool, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a timeout there is nothing else; not where this rank is in it already."""
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = getattr(wagma, name)(COMM, stall_warning=0.2)
    told: list[str] = []  # by rank 1, until when rank 0 does not come

    def tell(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if " has waited " in text and "version 0 " in text:
            if RANK == 1 and not told:
                COMM.send(None, 0)
            told.append(text)
        return True

    monkeypatch.setattr(caplog.handler, "filters", [tell])
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        with optimizer.join(1) if joins else nullcontext():
            if RANK == 0:
                COMM.recv(source=1)
            step_on(model, optimizer, batch(0, RANK))
        COMM.Barrier()
    assert told or RANK != 1
    for text in told:
        assert ("with opt.join(len(loader))" in text) is not joins, text
