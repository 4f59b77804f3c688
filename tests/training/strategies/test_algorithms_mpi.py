"""All algorithms on real ranks: they train, count versions, end with one model, refuse nonsense."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mpi4py import MPI
from tiny import EACH_KIND, batch, build_model, loss_of, mostly_long, on_all_ranks, step_on, values

import wagma
from wagma.algorithms import Algorithm
from wagma.collectives import MismatchError
from wagma.units import plural

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
STEPS = 12
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "WAGMA": lambda: wagma.WAGMA(COMM, sync_period=5),
    "WAGMA-fast-forward": lambda: wagma.WAGMA(COMM, sync_period=5, missed="fast-forward"),
    "WAGMA-fixed": lambda: wagma.WAGMA(COMM, sync_period=None, dynamic_groups=False),
    "WAGMA-waiting": lambda: wagma.WAGMA(COMM, sync_period=5, wait_avoiding=False),
    "AllreduceSGD": lambda: wagma.AllreduceSGD(COMM),
    "LocalSGD": lambda: wagma.LocalSGD(COMM, sync_period=5),
    "DPSGD": lambda: wagma.DPSGD(COMM),
    "SGP": lambda: wagma.SGP(COMM),
    "ADPSGD": lambda: wagma.ADPSGD(COMM),
    "EagerSGD-solo": lambda: wagma.EagerSGD(COMM, "solo"),
    "EagerSGD-majority": lambda: wagma.EagerSGD(COMM, "majority"),
    "KSync": lambda: wagma.KSync(COMM, -(-SIZE // 2)),
    "KAsync": lambda: wagma.KAsync(COMM, 1),
    "FastestK": lambda: wagma.FastestK(COMM, 1, thresh=0, burnin=1),
}


def sum_loss(model: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return how far the model is from the sum of its inputs.

    A few steps from any rank's batches, stale ones too, bring it nearer.
    """
    loss: torch.Tensor = (model(inputs)[:, 0] - inputs.sum(dim=1)).square().mean()
    return loss


def everybodys_loss(model: torch.nn.Module) -> float:
    inputs = torch.cat([batch(step, rank) for step in range(STEPS) for rank in range(SIZE)])
    return sum_loss(model, inputs).item()


@pytest.mark.parametrize("name", mostly_long(ALGORITHMS, (*EACH_KIND, "KAsync")))
def test_it_trains_and_ends_with_one_model(name: str) -> None:
    model = build_model()
    before = everybodys_loss(model)
    inner = torch.optim.Adam(model.parameters(), lr=0.02)
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name]()) as optimizer:
        steps = 0
        while (version := optimizer.version) < STEPS:
            time.sleep(0.002 * ((version + RANK) % 3))
            optimizer.zero_grad()
            sum_loss(model, batch(version, RANK)).backward()
            optimizer.step()
            assert optimizer.version > version
            steps += 1
        assert optimizer.version == STEPS
        alike = name.startswith(("EagerSGD", "K", "FastestK"))
        may_jump = alike or name == "WAGMA-fast-forward"
        assert steps == STEPS or may_jump
        if alike or name == "AllreduceSGD":
            assert len(set(on_all_ranks(values(model)))) == 1  # at every version
        optimizer.synchronize()
        assert optimizer.version == STEPS + 1
        assert len(set(on_all_ranks(values(model)))) == 1
        assert f"({plural(SIZE, 'rank')}" in repr(optimizer)
    assert everybodys_loss(model) < 0.9 * before


@pytest.mark.parametrize("variant", ["solo", "majority"])
def test_a_schedule_that_follows_versions_is_alike_on_all_ranks(variant: Any) -> None:
    """Who is late gets several results in one step, each with the rate of its version."""
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    with wagma.DistributedOptimizer(inner, wagma.EagerSGD(COMM, variant, grace=0)) as optimizer:
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        optimizer.register_step_post_hook(lambda *_: schedule.step())
        while optimizer.version < STEPS:
            time.sleep(0.002 * RANK)
            step_on(model, optimizer, batch(optimizer.version, RANK))
            assert schedule.get_last_lr() == [pytest.approx(0.2 * 0.8**optimizer.version)]
        assert len(set(on_all_ranks(values(model)))) == 1


@pytest.mark.parametrize("name", ["EagerSGD-solo", "LocalSGD", "DPSGD", "SGP"])
def test_a_closure_is_evaluated_once_and_its_loss_returned(name: str) -> None:
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = []
    with wagma.DistributedOptimizer(inner, ALGORITHMS[name]()) as optimizer, torch.no_grad():

        def closure() -> float:
            optimizer.zero_grad()
            loss = loss_of(model, batch(0, RANK))
            loss.backward()  # the optimizer enables gradients
            calls.append(loss.item())
            return loss

        before = values(model)
        result = optimizer.step(closure)
        assert torch.as_tensor(result).item() == calls[0]
        assert len(calls) == 1
        optimizer.synchronize()
        assert not torch.equal(values(model), before)


@pytest.mark.parametrize("everywhere", [True, False])
def test_eager_refuses_an_optimizer_that_evaluates_as_it_likes(everywhere: bool) -> None:
    """When it is made, on every rank."""
    likes = everywhere or RANK == SIZE - 1
    kind = torch.optim.LBFGS if likes else torch.optim.SGD
    inner = kind(build_model().parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"LBFGS, which evaluates.*Use AllreduceSGD"):
        wagma.DistributedOptimizer(inner, wagma.EagerSGD(COMM, "solo"))


def test_local_steps_count_from_the_start_of_the_training() -> None:
    """A period that a checkpoint has cut goes on where it was."""
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.LocalSGD(COMM, 4)) as optimizer:
        state = optimizer.state_dict()
        state["wagma"] = {"version": 6}
        optimizer.load_state_dict(state)
        averaged = []
        while optimizer.version < 13:
            step_on(model, optimizer, batch(optimizer.version, RANK))
            if optimizer.outcome is not None:
                averaged.append(optimizer.version)
        assert averaged == [8, 12]


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("name", ["DPSGD", "SGP", "LocalSGD", "ADPSGD", "EagerSGD-solo"])
def test_a_rank_that_leaves_early_is_missed_by_nobody(name: str) -> None:
    """Over messages it stays in close() until the others have ended, in all collectives."""
    model = build_model()
    algorithm = ALGORITHMS[name]()
    optimizer = wagma.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), algorithm)
    leaves = RANK == SIZE - 1
    while optimizer.version < (3 if leaves else STEPS):
        step_on(model, optimizer, batch(optimizer.version, RANK))
    if not leaves:
        if isinstance(algorithm, wagma.SGP):
            assert algorithm.push_weight == pytest.approx(1)  # it does not shrink by versions
        optimizer.synchronize()
        assert optimizer.version == STEPS + 1
    optimizer.close()
    assert len(set(on_all_ranks(values(model))[:-1])) == 1


# ---- wrong arguments -----------------------------------------------------------------------------

# name of the algorithm, arguments, error
WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("EagerSGD", {"variant": "duo"}, ValueError, "variant='duo' must be 'solo' or 'majority'"),
    ("EagerSGD", {"seed": -1}, ValueError, "seed=-1 must be"),
    ("EagerSGD", {"window": 0}, ValueError, "window=0 must be at least 1"),
    ("LocalSGD", {"sync_period": 0}, ValueError, "sync_period=0 must be at least 1"),
    ("LocalSGD", {"sync_period": 2.5}, TypeError, "sync_period=2.5 must be an int"),
    ("SGP", {"neighbors": 0}, ValueError, "neighbors=0 must be 1"),
    ("SGP", {"neighbors": 9}, ValueError, "neighbors=9 must be 1"),
    ("ADPSGD", {"grace": -1.0}, ValueError, "grace=-1.0 must be"),
    ("WAGMA", {"sync_period": -1}, ValueError, "sync_period=-1 must be at least 1"),
    ("WAGMA", {"sync_period": True}, TypeError, "sync_period=True must be an int"),
    ("LocalSGD", {"sync_period": True}, TypeError, "sync_period=True must be an int"),
    ("WAGMA", {"group_size": True}, TypeError, "group_size=True must be an int"),
    ("SGP", {"neighbors": True}, TypeError, "neighbors=True must be an int"),
    ("ADPSGD", {"window": True}, TypeError, "window=True must be an int"),
    ("EagerSGD", {"seed": False}, TypeError, "seed=False must be an int"),
    ("EagerSGD", {"grace": float("nan")}, ValueError, "grace=nan must be"),
    ("WAGMA", {"grace": True}, TypeError, "grace=True must be a number of seconds"),
    ("WAGMA", {"grace": "Auto"}, TypeError, 'grace=.Auto. must be a number of seconds, or "auto"'),
    ("DPSGD", {"timeout": float("nan")}, ValueError, "timeout=nan must be 0 or more"),
    ("AllreduceSGD", {"timeout": True}, TypeError, "timeout=True must be a number of seconds"),
    ("LocalSGD", {"stall_warning": 0}, ValueError, "stall_warning=0 must be 0.1 .* or None for"),
    ("WAGMA", {"wait_avoiding": 1}, TypeError, "wait_avoiding=1 must be True or False"),
    (
        "WAGMA",
        {"group_size": SIZE + 1},
        ValueError,
        f"group_size={SIZE + 1} must be 1 to {SIZE}, the number of ranks",
    ),
    *(
        ("WAGMA", {"wait_avoiding": False, name: value}, ValueError, f"{name}={value!r} and wait_")
        for name, value in {"missed": "fast-forward", "activation": "world", "grace": 0}.items()
    ),
]


@pytest.mark.parametrize("everywhere", [pytest.param(True, marks=pytest.mark.long), False])
@pytest.mark.parametrize(("name", "arguments", "error", "text"), WRONG)
def test_a_wrong_argument_is_everyones_error(
    name: str, arguments: dict[str, Any], error: type[Exception], text: str, everywhere: bool
) -> None:
    """Also where one rank alone has it: nobody waits for that rank."""
    inner = torch.optim.SGD(build_model().parameters(), lr=0.1)
    needed = {"variant": "solo"} if name == "EagerSGD" else {}
    given = needed | arguments if everywhere or RANK == SIZE - 1 else needed
    with pytest.raises(error, match=text):
        wagma.DistributedOptimizer(inner, getattr(wagma, name)(COMM, **given))


@pytest.mark.mpi(min_size=2)
def test_ranks_with_different_algorithms_or_periods_are_told() -> None:
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    last = RANK == SIZE - 1
    with pytest.raises(MismatchError, match="algorithm differs between ranks: 'DPSGD'"):
        wagma.DistributedOptimizer(inner, wagma.SGP(COMM) if last else wagma.DPSGD(COMM))
    with pytest.raises(MismatchError, match="sync_period differs between ranks: 3"):
        wagma.DistributedOptimizer(inner, wagma.LocalSGD(COMM, 4 if last else 3))
    with pytest.raises(MismatchError, match="variant differs between ranks: 'solo'"):
        wagma.DistributedOptimizer(inner, wagma.EagerSGD(COMM, "majority" if last else "solo"))
