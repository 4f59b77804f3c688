"""A training whose updates say which ranks' gradients they took."""

import torch
from tiny import RANK, SIZE

import wagma


class Recorded:
    """A training of one parameter per rank; a rank's gradient is 1 in its own place."""

    def __init__(self, algorithm: wagma.Algorithm) -> None:
        self.weights = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
        inner = torch.optim.SGD([self.weights], lr=1.0)
        inner.register_step_post_hook(lambda *_: self.updates.append(self._grad()))
        self.updates: list[list[float]] = []
        self.opt = wagma.DistributedOptimizer(inner, algorithm)

    def _grad(self) -> list[float]:
        assert self.weights.grad is not None
        return list(self.weights.grad.tolist())

    def backward(self) -> None:
        self.opt.zero_grad()
        self.weights[RANK].backward()
