"""Optimizers that take a closure in their own way."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.training.closures import needs_closure


class Twice(torch.optim.SGD):
    """Evaluates its closure twice per step, as SAM does, and steps at the mean gradient."""

    def evaluate(self, closure: Callable[[], Any]) -> Any:
        with torch.enable_grad():
            closure()
            loss = closure()
        super().step()
        return loss


class Positional(Twice):
    def step(self, loss_function: Any, /) -> Any:
        return self.evaluate(loss_function)


class Named(Twice):
    def step(self, evaluate: Any) -> Any:
        return self.evaluate(evaluate)


class Keyword(Twice):
    def step(self, *, closure: Any) -> Any:
        return self.evaluate(closure)


class Second(Twice):
    def step(self, zero_grad: bool = False, *, forward: Any) -> Any:
        assert not zero_grad
        return self.evaluate(forward)


class SecondOptional(Twice):
    def step(self, zero_grad: bool = False, closure: Any = None) -> Any:
        assert not zero_grad
        return super().step() if closure is None else self.evaluate(closure)


class Anything(Twice):
    def step(self, *args: Any, **options: Any) -> Any:
        assert not options
        return self.evaluate(*args) if args else super().step()


NEEDS = [Positional, Named, Keyword, Second, torch.optim.LBFGS]
CAN_DO_WITHOUT = [SecondOptional, Anything, torch.optim.SGD, torch.optim.Adam]


@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize("kind", [*NEEDS, *CAN_DO_WITHOUT])
def test_it_gets_the_closure(kind: Any, scheduled: bool) -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    evaluations = 0
    with wagma.DistributedOptimizer(
        kind([weights], lr=0.1), wagma.AllreduceSGD(MPI.COMM_SELF)
    ) as optimizer:
        if scheduled:
            torch.optim.lr_scheduler.ConstantLR(optimizer)  # replaces the optimizer's step

        def closure() -> float:
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = weights.square().sum()
            loss.backward()
            return loss

        assert torch.as_tensor(optimizer.step(closure)).item() == 2
        assert evaluations == optimizer.version >= 1
        assert bool((weights < 1).all())


@pytest.mark.parametrize("kind", NEEDS)
def test_one_that_needs_it_is_recognised(kind: Any) -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    inner = kind([weights], lr=0.1)
    assert needs_closure(inner)
    with pytest.raises(TypeError, match=f"EagerSGD cannot train with {kind.__name__}"):
        wagma.DistributedOptimizer(inner, wagma.EagerSGD(MPI.COMM_SELF, "solo"))
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(MPI.COMM_SELF)) as optimizer:
        weights.grad = torch.ones(2)
        with pytest.raises(TypeError, match=rf"{kind.__name__} needs a closure.*step\(closure\)"):
            optimizer.step()
        assert optimizer.version == 0
        with pytest.raises(ValueError, match="evaluates a closure"), optimizer.join(2):
            pass


@pytest.mark.parametrize("kind", CAN_DO_WITHOUT)
def test_one_that_can_do_without_is_recognised(kind: Any) -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    inner = kind([weights], lr=0.1)
    assert not needs_closure(inner)
    for make in (lambda c: wagma.EagerSGD(c, "solo"), wagma.WAGMA):
        with wagma.DistributedOptimizer(inner, make(MPI.COMM_SELF)) as optimizer:
            weights.grad = torch.ones(2)
            optimizer.step()
            assert optimizer.version == 1
