"""Trainings of other tasks and with several seeds, which a busy machine does not disturb."""

from pathlib import Path
from typing import Any

import pytest
from started import result, results

pytestmark = [pytest.mark.training, pytest.mark.long]

# Steps, samples, and what a model is worth that has learned; one that has not: 0 and 15.
TASKS = {"charlm": (60, 16, 0.2), "episodes": (80, 4, 75.0)}
BOTH = ("--algorithms", "wagma,allreduce")
SERVED = ["--algorithms", "k-sync1", "--steps", "10", "--compute", "20ms"]
SEEDS = ["--algorithms", "local1,allreduce", "--imbalance", "one-server:0:0.001"]
LINES = {
    **{
        task: [*("--task", task, "--steps", str(steps), "--batch", str(batch)), *BOTH]
        for task, (steps, batch, _) in TASKS.items()
    },
    "seeds": ["--seeds", "3,4", *SEEDS, "--steps", "20"],
    "served": SERVED,
}

Runs = dict[str, tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Document and output of each of LINES, on two ranks."""
    folder = tmp_path_factory.mktemp("runs")
    return dict(zip(LINES, results(folder, 2, list(LINES.values())), strict=True))


@pytest.mark.parametrize("task", TASKS)
def test_other_tasks(task: str, runs: Runs) -> None:
    steps, _, least = TASKS[task]
    document, _ = runs[task]
    assert document["measures"]["in_percent"] == (task == "charlm")
    assert [run["algorithm"] for run in document["runs"]] == ["wagma", "allreduce"]
    for run in document["runs"]:
        assert run["accuracy"] > least, run["label"]
        assert run["steps_per_rank"] == [steps] * 2


def test_a_server_waits_while_its_learner_computes(runs: Runs) -> None:
    (run,) = runs["served"][0]["runs"]
    learner, server = run["waited_seconds_per_rank"]
    assert server > 10 * 0.015
    assert 0 < learner < run["wall_seconds"] - 10 * 0.015
    assert run["ideal_throughput"] is None


def test_seeds_are_trained_one_after_the_other(runs: Runs, tmp_path: Path) -> None:
    document, printed = runs["seeds"]
    assert [(run["seed"], run["algorithm"]) for run in document["runs"]] == [
        (seed, name) for seed in (3, 4) for name in ("local1", "allreduce")
    ]
    first, second = (run["curve"]["accuracy"] for run in document["runs"][::2])
    assert first != second
    assert "Mean ± standard deviation of 2 seeds." in printed
    again, _ = result(tmp_path, 2, "--seeds", "4", "--algorithms", "local1", "--steps", "20")
    assert again["runs"][0]["curve"]["accuracy"] == second, "a seed says everything"
