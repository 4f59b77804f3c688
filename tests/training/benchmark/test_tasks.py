"""The tasks: batches are functions of their numbers, models learn, costs are what was played."""

import numpy as np
import pytest
import torch

from wagma.benchmarks.training.tasks import TASKS, Batch, Task, load
from wagma.benchmarks.training.tasks.cartpole import LONGEST, play

pytestmark = pytest.mark.training

torch.set_num_threads(1)


def trained(task: Task, name: str, steps: int, seed: int = 1) -> float:
    """What the model is worth after some steps of a single process with four ranks' samples."""
    model = task.build_model(seed)
    optimizer = task.optimizer(model.parameters(), TASKS[name].learning_rate)
    for step in range(steps):
        optimizer.zero_grad()
        task.loss(model, Batch(0, 1, step, 4 * TASKS[name].batch, seed))[0].backward()
        optimizer.step()
    return task.evaluate(model)


@pytest.mark.long
@pytest.mark.parametrize(("name", "steps"), [("digits", 200), ("charlm", 60), ("episodes", 100)])
def test_models_learn(name: str, steps: int) -> None:
    task = load(name, 1)
    before = task.evaluate(task.build_model(1))
    after = trained(task, name, steps)
    if name == "episodes":
        assert before < 60
    else:
        assert before < 0.2
    assert after >= 0.9 * TASKS[name].target


@pytest.mark.parametrize("name", TASKS)
def test_batches_depend_on_their_numbers_alone(name: str) -> None:
    task, again = load(name, 3), load(name, 3)
    model = task.build_model(5)
    assert task.evaluate(model) == again.evaluate(again.build_model(5))

    def loss(*numbers: int) -> tuple[float, float]:
        value, cost = task.loss(model, Batch(*numbers))
        return float(value.detach()), cost

    same = loss(1, 4, 7, 5, 3)
    assert again.loss(model, Batch(1, 4, 7, 5, 3))[0].item() == same[0]
    for other in ((2, 4, 7, 5, 3), (1, 4, 8, 5, 3), (1, 4, 7, 5, 4)):
        assert loss(*other)[0] != same[0], other


def test_batches_of_characters_differ_in_cost() -> None:
    task = load("charlm", 1)
    model = task.build_model(1)
    with torch.no_grad():
        costs = [task.loss(model, Batch(0, 1, step, 2, 1))[1] for step in range(300)]
    assert np.mean(costs) == pytest.approx(1, abs=0.15)
    assert np.percentile(costs, 95) > 4 * np.percentile(costs, 5)


def test_episodes_differ_in_length() -> None:
    bad = play(lambda states: np.full(len(states), 0.5), 200, np.random.default_rng(1))
    assert 5 < bad.lengths.mean() < 40

    def steady(states: np.ndarray) -> np.ndarray:
        return (states @ [0.1, 0.3, 3.0, 1.0] > 0).astype(float)

    good = play(steady, 200, np.random.default_rng(1))
    assert good.lengths.max() == LONGEST == len(good.states)
    assert good.lengths.min() < 10, "some poles cannot be saved"
    assert good.lengths.mean() > 4 * bad.lengths.mean()
    # What ended does not begin again.
    assert np.all(np.diff(good.going.astype(int), axis=0) <= 0)


def test_an_episode_ends_when_the_pole_has_fallen() -> None:
    played = play(lambda states: np.ones(len(states)), 20, np.random.default_rng(2))
    for episode, length in enumerate(played.lengths):
        kept = played.states[:length, episode]
        assert np.all(np.abs(kept[:, 2]) <= np.deg2rad(12) + 1e-12)
        assert np.all(np.abs(kept[:, 0]) <= 2.4)
