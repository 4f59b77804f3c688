"""Trainings of other tasks and with several seeds, which a busy machine does not disturb."""

from pathlib import Path

import pytest
from started import result


@pytest.mark.parametrize("task", ["charlm", "episodes"])
def test_other_tasks(task: str, tmp_path: Path) -> None:
    # What a model that has learned nothing is worth: 0 and 15.
    steps, batch, least = {"charlm": ("60", "16", 0.2), "episodes": ("80", "4", 75.0)}[task]
    options = ("--task", task, "--steps", steps, "--batch", batch)
    options += ("--algorithms", "wagma,allreduce")
    document, _ = result(tmp_path, 2, *options)
    assert document["measures"]["in_percent"] == (task == "charlm")
    for run in document["runs"]:
        assert run["accuracy"] > least, run["label"]
        assert run["steps_per_rank"] == [int(steps)] * 2


def test_seeds_are_trained_one_after_the_other(tmp_path: Path) -> None:
    options = ("--seeds", "3,4", "--algorithms", "local1,allreduce", "--steps", "20")
    document, printed = result(tmp_path, 2, *options, "--imbalance", "one-server:0:0.001")
    assert [(run["seed"], run["algorithm"]) for run in document["runs"]] == [
        (seed, name) for seed in (3, 4) for name in ("local1", "allreduce")
    ]
    first, second = (run["curve"]["accuracy"] for run in document["runs"][::2])
    assert first != second
    assert "Mean ± standard deviation of 2 seeds." in printed
    again, _ = result(tmp_path, 2, "--seeds", "4", "--algorithms", "local1", "--steps", "20")
    assert again["runs"][0]["curve"]["accuracy"] == second, "a seed says everything"
