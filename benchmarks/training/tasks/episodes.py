"""A policy gradient on episodes of very different length: steps cost what is played in them."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from .cartpole import LONGEST, OBSERVED, Episodes, Floats, play
from .task import Batch, Task

DISCOUNT = 0.98
TESTS = 64
# Length of the longest episode of a batch at which its cost is 1.
TYPICAL = LONGEST / 2


class EpisodesTask(Task):
    """Williams's REINFORCE on a cart with a pole."""

    name = "episodes"
    measures = "mean return"
    in_percent = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def build_model(self, seed: int) -> nn.Module:
        """Return a perceptron that scores action 1."""
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(OBSERVED, 32), nn.Tanh(), nn.Linear(32, 1))

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
        """Play with the current policy; return the loss whose gradient is the policy gradient."""
        played = play(_policy(model), batch.samples, np.random.default_rng(batch.key))
        advantages = torch.from_numpy(_advantages(played)).float()
        scores = model(torch.from_numpy(played.states).float()).squeeze(2)
        surprise = nn.functional.binary_cross_entropy_with_logits(
            scores, torch.from_numpy(played.actions).float(), reduction="none"
        )
        loss = (surprise * advantages).sum() / float(played.going.sum())
        return loss, len(played.states) / TYPICAL

    def evaluate(self, model: nn.Module) -> float:
        """Return the mean length of episodes that begin alike for every model."""
        return float(play(_policy(model), TESTS, np.random.default_rng(self._seed)).lengths.mean())


def _policy(model: nn.Module) -> Callable[[Floats], Floats]:
    """Return the model without torch, which takes longer for so few numbers at a time."""
    first, last = (module for module in model.modules() if isinstance(module, nn.Linear))
    w, b, v, c = (p.detach().double().numpy() for p in (*first.parameters(), *last.parameters()))

    def chances(states: Floats) -> Floats:
        scores = np.tanh(states @ w.T + b) @ v.T + c
        likely: Floats = 1 / (1 + np.exp(-scores[:, 0]))
        return likely

    return chances


def _advantages(played: Episodes) -> Floats:
    """Return standardised discounted returns from each step, 0 after the end: [steps, episodes]."""
    returns = np.zeros(played.going.shape)
    following = np.zeros(played.going.shape[1])
    for step in range(len(returns) - 1, -1, -1):
        following = played.going[step] * (1 + DISCOUNT * following)
        returns[step] = following
    own = returns[played.going]
    advantages: Floats = np.where(played.going, (returns - own.mean()) / (own.std() + 1e-8), 0.0)
    return advantages


def load(seed: int) -> EpisodesTask:
    """Return the task, which plays its episodes and reads nothing."""
    return EpisodesTask(seed)
