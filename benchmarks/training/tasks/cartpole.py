"""A pole that has to be kept upright on a cart: Barto, Sutton and Anderson's control problem.

Many at once, without any library but numpy. An episode ends when the pole falls over or the cart
leaves its track, or after LONGEST steps: bad policies have short episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

LONGEST = 300
OBSERVED = 4  # position, velocity, angle, angular velocity

GRAVITY, CART_KG, POLE_KG, HALF_POLE_M = 9.8, 1.0, 0.1, 0.5
FORCE_N, STEP_S = 10.0, 0.02
TRACK_M, FALLEN_RAD = 2.4, np.deg2rad(12)
# Each number of the first state is uniform up to here: some poles are about to fall.
START = np.array([1.0, 1.0, 0.2, 2.0])


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes that were played."""

    states: Floats  # before each step: [steps, episodes, OBSERVED]
    actions: Integers  # 0 or 1: [steps, episodes]
    going: Booleans  # whether the episode had not ended before the step: [steps, episodes]

    @property
    def lengths(self) -> Integers:
        """Steps of each episode, which are its return: [episodes]."""
        lengths: Integers = self.going.sum(axis=0)
        return lengths


def play(policy: Callable[[Floats], Floats], episodes: int, draw: np.random.Generator) -> Episodes:
    """Play `episodes` side by side.

    Args:
        policy: the probability of action 1 in each state: [episodes, OBSERVED] -> [episodes].
        episodes: how many.
        draw: of first states and actions.
    """
    state = draw.uniform(-START, START, size=(episodes, OBSERVED))
    going = np.ones(episodes, dtype=bool)
    played: list[tuple[Floats, Integers, Booleans]] = []
    while going.any() and len(played) < LONGEST:
        action = (draw.random(episodes) < policy(state)).astype(np.int64)
        played.append((state, action, going))
        state = _step(state, np.where(action == 1, FORCE_N, -FORCE_N))
        going = going & (np.abs(state[:, 0]) <= TRACK_M) & (np.abs(state[:, 2]) <= FALLEN_RAD)
    states, actions, goings = (np.stack(part) for part in zip(*played, strict=True))
    return Episodes(states, actions, goings)


def _step(state: Floats, force: Floats) -> Floats:
    """Return the equations of motion, one step of Euler's method."""
    velocity, angle, turning = state[:, 1], state[:, 2], state[:, 3]
    total = CART_KG + POLE_KG
    sine, cosine = np.sin(angle), np.cos(angle)
    pushed = (force + POLE_KG * HALF_POLE_M * turning**2 * sine) / total
    angular = (GRAVITY * sine - cosine * pushed) / (
        HALF_POLE_M * (4 / 3 - POLE_KG * cosine**2 / total)
    )
    linear = pushed - POLE_KG * HALF_POLE_M * angular * cosine / total
    rates = np.stack([velocity, linear, turning, angular], axis=1)
    following: Floats = state + STEP_S * rates
    return following
