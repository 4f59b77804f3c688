"""A training whose updates say which ranks' gradients they took."""

import time

import torch
from tiny import RANK, SIZE

import wagma
from wagma.collectives import QuorumAllreduce


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

    def wait_until_started(self) -> None:
        """Wait until others have started the version that this rank calls next: it is late then."""
        collective = self.opt.algorithm.collective
        assert isinstance(collective, QuorumAllreduce)
        begin = time.monotonic()
        while not collective.pinned():
            assert time.monotonic() - begin < 60
            time.sleep(0.001)
