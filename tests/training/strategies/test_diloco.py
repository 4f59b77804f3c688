"""DiLoCo equals one process that plays all ranks in plain torch."""

from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

import pytest
import torch
from tiny import (
    COMM,
    OPTIMIZERS,
    RANK,
    SIZE,
    batch,
    build_model,
    loss_of,
    on_all_ranks,
    on_time,
    values,
)

import wagma
from wagma.collectives import MismatchError, PartialAllreduce, PeerError

pytestmark = pytest.mark.mpi

H, STEPS = 3, 11  # three periods, and two steps of a fourth


def outer(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.6, momentum=0.8, nesterov=True)


def weight_of(step: int, rank: int) -> float:
    """Some ranks have no samples in a step, nobody has any in the second period."""
    return float((step + rank) % 3) * (step // H != 1)


def reference(weight: Callable[[int, int], float], overlap: bool, synchronized: bool) -> Any:
    """The model of this rank after `STEPS` steps: of the paper's Algorithm 1, rank by rank."""
    models = [build_model() for _ in range(SIZE)]
    inners = [OPTIMIZERS["SGD"](model.parameters()) for model in models]
    anchors = [p.detach().clone() for p in models[0].parameters()]
    velocities = [torch.zeros_like(p) for p in anchors]
    posted: list[torch.Tensor] | None = None
    weights: list[list[float]] = [[] for _ in range(SIZE)]

    def mean_change() -> list[torch.Tensor] | None:
        means = [sum(w) / len(w) if w else 0.0 for w in weights]
        if not sum(means):
            return None
        mixed = [torch.zeros_like(p) for p in anchors]
        for mean, model in zip(means, models, strict=True):
            for total, anchor, p in zip(mixed, anchors, model.parameters(), strict=True):
                total += mean * (anchor - p.detach()) / sum(means)
        return mixed

    def step_outer(gradients: list[torch.Tensor] | None) -> None:
        for anchor, velocity, g in zip(anchors, velocities, gradients or (), strict=False):
            velocity.mul_(0.8).add_(g)
            anchor.sub_(0.6 * (g + 0.8 * velocity))

    def begin() -> None:
        for model, own in zip(models, weights, strict=True):
            own.clear()
            for p, anchor in zip(model.parameters(), anchors, strict=True):
                p.data.copy_(anchor)

    for step in range(STEPS):
        for rank, model in enumerate(models):
            weights[rank].append(weight(step, rank))
            if weights[rank][-1]:
                inners[rank].zero_grad()
                loss_of(model, batch(step, rank)).backward()
                inners[rank].step()
        if (step + 1) % H == 0:
            change = mean_change()
            step_outer(posted if overlap else change)
            posted = change
            begin()
    if synchronized:
        change = mean_change()
        if overlap:
            step_outer(posted)
        step_outer(change)
        begin()
    return values(models[RANK])


def train(
    weight: Callable[[int, int], float],
    synchronized: bool = True,
    meet: Callable[[], None] = lambda: None,
    grows_at: int | None = None,
    **options: Any,
) -> tuple[wagma.DistributedOptimizer, torch.Tensor]:
    model = build_model(seed=RANK)
    inner = OPTIMIZERS["SGD"](model.parameters())
    algorithm = wagma.DiLoCo(COMM, H, outer, **options)
    with wagma.DistributedOptimizer(inner, algorithm) as opt:
        while opt.version < STEPS:
            if opt.version == grows_at:
                late = torch.nn.Parameter(torch.full((40,), RANK, dtype=torch.float64))
                opt.add_param_group({"params": [late]})
            opt.zero_grad()
            loss_of(model, batch(opt.version, RANK)).backward()
            if grows_at is not None and opt.version >= grows_at:
                late.grad = torch.ones_like(late)
            opt.weight = weight(opt.version, RANK)
            meet()
            opt.step()
        if synchronized:
            opt.synchronize()
            assert opt.version == STEPS + 1
        if grows_at is not None:
            assert late.max() < 0  # rank 0's, and trained
            assert len(set(on_all_ranks(late))) == 1
    return opt, values(model)


def ones(_step: int, _rank: int) -> float:
    return 1.0


@pytest.mark.parametrize("synchronized", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("weight", [ones, weight_of])
def test_it_is_one_process(
    weight: Callable[[int, int], float], overlap: bool, synchronized: bool
) -> None:
    _, found = train(weight, synchronized, overlap=overlap)
    expected = reference(weight, overlap, synchronized)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if synchronized:
        assert len(set(on_all_ranks(found))) == 1


@pytest.mark.parametrize("overlap", [False, True])
def test_one_group_of_all_in_which_nobody_is_late(
    overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = partialmethod(PartialAllreduce.__init__, grace=20.0)
    monkeypatch.setattr(PartialAllreduce, "__init__", make)
    found = on_time(lambda meet: train(ones, False, meet, overlap=overlap, group_size=SIZE))
    expected = reference(ones, overlap, False)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("grows_at", [H, H + 1])  # before a period, and in it
def test_late_parameters_change_nothing_for_the_others(grows_at: int, overlap: bool) -> None:
    _, found = train(ones, grows_at=grows_at, overlap=overlap)
    torch.testing.assert_close(found, reference(ones, overlap, True), rtol=1e-12, atol=1e-12)


def test_groups_have_one_model_after_synchronize() -> None:
    opt, found = train(ones, group_size=max(1, SIZE // 2))
    assert len(set(on_all_ranks(found))) == 1
    assert opt.outcome is not None
    assert len(opt.outcome.contributors) == SIZE


def test_a_period_begins_with_the_model_that_is_there() -> None:
    """One that was loaded is no change of the period."""
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.DiLoCo(COMM, H)) as opt:
        for seed in (5, 6):
            model.load_state_dict(build_model(seed).state_dict())
            for _ in range(H):
                opt.step()  # without gradients
            assert torch.equal(values(model), values(build_model(seed)))


def test_the_outer_optimizer_has_a_schedule() -> None:
    model = build_model()
    algorithm = wagma.DiLoCo(COMM, 1)
    with wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), algorithm) as opt:
        schedule = torch.optim.lr_scheduler.ExponentialLR(algorithm.outer, 0.5)
        opt.step()
        schedule.step()
        assert algorithm.outer.param_groups[0]["lr"] == pytest.approx(0.35)


@pytest.mark.parametrize("options", [{"overlap": True}, {"group_size": 1}])
def test_the_default_converges_where_changes_are_old(options: dict[str, Any]) -> None:
    """Periods that reach their minimum at once, 0: the paper's outer optimizer diverges there."""

    def last(**given: Any) -> float:
        parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
        inner = torch.optim.SGD([parameter], lr=1.0)
        with wagma.DistributedOptimizer(inner, wagma.DiLoCo(COMM, 1, **given)) as opt:
            for _ in range(40):
                parameter.grad = parameter.detach().clone()
                opt.step()
        return abs(parameter.item())

    assert last(**options) < 1e-2
    if "overlap" in options:
        paper = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
        assert last(outer=paper, **options) > 1e2


@pytest.mark.mpi(min_size=2)
def test_a_failure_while_changes_are_on_their_way() -> None:
    model = build_model()
    opt = wagma.DistributedOptimizer(
        OPTIMIZERS["SGD"](model.parameters()), wagma.DiLoCo(COMM, 1, overlap=True)
    )
    with pytest.raises(ZeroDivisionError if RANK == 0 else PeerError), opt:
        opt.step()
        COMM.Barrier()
        if RANK == 0:
            raise ZeroDivisionError
        for _ in range(3):
            opt.step()
    assert bool(values(model).isfinite().all())
    opt.state_dict()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"outer": 0.7}, TypeError, "outer=0.7 must be a function that takes a list of one"),
        ({"outer": lambda _: None}, TypeError, "must be a function .* returns an optimizer"),
        ({"outer": torch.optim.LBFGS}, TypeError, "steps without a closure"),
        ({"outer": lambda p: torch.optim.SGD(p, lr=-1)}, ValueError, "Invalid learning rate: -1"),
        ({"outer": torch.optim.SGD}, MismatchError, "outer differs between ranks: 'SGD"),
        ({"overlap": 1}, TypeError, "overlap=1 must be True or False"),
        ({"overlap": True}, MismatchError, "overlap differs between ranks: False"),
        ({"group_size": 1}, MismatchError, "group_size differs between ranks: None"),
        ({"group_size": 0}, ValueError, "group_size=0"),
        ({"sync_period": 0}, ValueError, "sync_period=0"),
    ],
)
def test_wrong_arguments_on_one_rank(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    algorithm = wagma.DiLoCo(COMM, **(options if RANK == SIZE - 1 else {}))
    inner = OPTIMIZERS["SGD"](build_model().parameters())
    with pytest.raises(error, match=words):
        wagma.DistributedOptimizer(inner, algorithm)
