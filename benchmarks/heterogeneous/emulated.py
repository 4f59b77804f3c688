"""Ranks that take as long as the nodes of a cluster: they sleep before and during backward."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from wagma.theory.cannikin import NodeModel

from .settings import Slowdown

LAYERS = 8  # of the model: backward sleeps in each, so that buckets leave meanwhile


def scaled(node: NodeModel, factor: float) -> NodeModel:
    """Return a node that takes `factor` times as long."""
    return replace(node, q=factor * node.q, s=factor * node.s, k=factor * node.k, m=factor * node.m)


def factors(slowdown: Sequence[Slowdown], ranks: int, epoch: int) -> list[float]:
    """Return by what the times of each rank are multiplied in an epoch, counted from 1."""
    found = [1.0] * ranks
    for one in slowdown:
        if one.epoch <= epoch:
            found[one.rank] *= one.factor
    return found


class EmulatedNode(nn.Module):
    """A model whose passes take as long as a node's, and whose gradients are noise around 1.

    A step with b samples sleeps until q b + s seconds have passed, and backward until k b + m more
    have, equally many in each layer. What a rank really computes meanwhile is part of that time.
    Gradients have variance `noise_scale` / b: that is the noise scale of this training.

    Args:
        rank: seeds the noise.
        parameters: of all layers together, about.
        noise_scale: B_noise, samples.
    """

    def __init__(self, rank: int, parameters: int, noise_scale: float) -> None:
        super().__init__()
        size = max(1, parameters // LAYERS)
        self.layers = nn.ParameterList(torch.zeros(size) for _ in range(LAYERS))
        self._random = np.random.default_rng([rank, 1])
        # Cut anew in each step: drawing so many numbers would take the cores of other ranks.
        self._noise = torch.from_numpy(self._random.standard_normal(2 * size, np.float32))
        self._deviation = noise_scale**0.5
        self._batch = 0
        self._node = NodeModel(0, 0, 1, 0)
        self._backward = 0.0  # when it begins, by time.perf_counter

    def forward(self, batch: int, node: NodeModel, began: float) -> torch.Tensor:
        """Return a loss of `batch` samples, when the node would.

        Args:
            batch: samples.
            node: its times.
            began: when the step began, by time.perf_counter.
        """
        self._batch, self._node = batch, node
        self._backward = began + node.q * batch + node.s
        loss = torch.zeros(())
        for number, layer in enumerate(self.layers):
            loss = _Layer.apply(loss, layer, self, number)  # type: ignore[no-untyped-call]
        _sleep_until(self._backward)
        return loss

    def gradient(self, number: int) -> torch.Tensor:
        """Return the gradient of a layer, when the node would have it."""
        share = (LAYERS - number) / LAYERS
        size = len(self._noise) // 2
        first = int(self._random.integers(size))
        noise = self._noise[first : first + size]
        found = noise.mul(self._deviation / self._batch**0.5).add_(1.0)
        _sleep_until(self._backward + share * (self._node.k * self._batch + self._node.m))
        return found


class _Layer(torch.autograd.Function):
    """A layer that passes its input on, and whose backward sleeps."""

    @staticmethod
    def forward(
        context: Any, loss: torch.Tensor, layer: torch.Tensor, node: EmulatedNode, number: int
    ) -> torch.Tensor:
        """Return the loss; `layer` gets a gradient for it."""
        del layer
        context.node, context.number = node, number
        return loss.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        """Return the gradients of the loss and of the layer."""
        return gradient, context.node.gradient(context.number), None, None


def _sleep_until(end: float) -> None:
    if (left := end - time.perf_counter()) > 0:
        time.sleep(left)
