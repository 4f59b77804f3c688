"""Gradients stay the user's, as with plain torch: kept, in threads, in a fork, in a graph."""

import os
import threading
from collections.abc import Callable

import pytest
import torch
from mpi4py import MPI
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm

ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "WAGMA": lambda: wagma.WAGMA(MPI.COMM_SELF),
    "AllreduceSGD": lambda: wagma.AllreduceSGD(MPI.COMM_SELF),
    "EagerSGD": lambda: wagma.EagerSGD(MPI.COMM_SELF, "solo"),
}


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_gradient_that_is_kept_stays_what_it_was(name: str, set_to_none: bool) -> None:
    weights = torch.nn.Parameter(torch.zeros(2))
    kept = []
    with wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), ALGORITHMS[name]()) as opt:
        for factor in (1.0, 10.0, 100.0):
            opt.zero_grad()
            (weights * torch.tensor([1.0, 2.0]) * factor).sum().backward()
            kept.append((weights.grad, factor))
        opt.step()
        kept.append((weights.grad, 100.0))
        for factor in (3.0, 4.0):
            weights.grad = None if set_to_none else torch.zeros(2)
            (weights * torch.tensor([1.0, 2.0]) * factor).sum().backward()
            kept.append((weights.grad, factor))
            opt.step()
            kept.append((weights.grad, factor))
    for gradient, factor in kept:
        assert gradient is not None
        assert gradient.tolist() == [factor, 2 * factor]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_backward_in_threads_adds_up(name: str) -> None:
    """A hook that replaces ``.grad`` ends in a crash after some hundred of these."""
    weights = torch.nn.Parameter(torch.zeros(3, dtype=torch.double))
    with wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=1.0), ALGORITHMS[name]()) as opt:
        for _ in range(300):
            opt.zero_grad()
            threads = [threading.Thread(target=lambda: weights.sum().backward()) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert weights.grad is not None
            assert weights.grad.tolist() == [4] * 3
            opt.step()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_forked_childs_backward_changes_nothing_here(name: str) -> None:
    weights = torch.nn.Parameter(torch.zeros(3))
    with wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=1.0), ALGORITHMS[name]()) as opt:
        for _ in range(2):
            opt.zero_grad()
            weights.sum().backward()
            child = os.fork()
            if child == 0:
                weights.sum().backward()
                os._exit(weights.grad is None or weights.grad.tolist() != [2] * 3)
            assert os.waitpid(child, 0)[1] == 0
            assert weights.grad is not None
            assert weights.grad.tolist() == [1] * 3
            opt.step()
            opt.zero_grad(set_to_none=False)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_penalty_on_gradients_counts(name: str) -> None:
    results = []
    for distributed in (False, True):
        weights = torch.nn.Parameter(torch.ones(3))
        opt: Optimizer = torch.optim.SGD([weights], lr=0.01)
        if distributed:
            opt = wagma.DistributedOptimizer(opt, ALGORITHMS[name]())
        for _ in range(3):
            opt.zero_grad()
            weights.pow(3).sum().backward(create_graph=True)
            assert weights.grad is not None
            weights.grad.square().sum().backward()
            opt.step()
            weights.grad = None
        results.append(weights.detach().clone())
    assert torch.equal(*results)
