"""Check options and figures of the benchmark of uneven batches."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from divisions import NODES, epoch, result, settings

from wagma.benchmarks.heterogeneous import plots, table
from wagma.benchmarks.heterogeneous.emulated import LAYERS, EmulatedNode, factors
from wagma.benchmarks.heterogeneous.figures import runs
from wagma.benchmarks.heterogeneous.settings import Slowdown, check
from wagma.cli import main
from wagma.report.heterogeneous import announced
from wagma.theory.cannikin import NodeModel


def test_figures_are_those_of_the_epochs() -> None:
    even, cannikin = result()["runs"]
    assert [one["ideal"] for one in even["epochs"]] == pytest.approx([0.12] * 3 + [960 / 7000] * 3)
    assert even["reached"] == [None, None]
    assert cannikin["reached"] == [2, 2]  # the second epoch, and the second one after the slowdown
    assert cannikin["speedup"] == pytest.approx(0.48 / 0.138)
    assert even["speedup"] == 1.0
    assert cannikin["seconds_slowed"] == [0.24]
    assert (even["seconds_best"], cannikin["seconds_best"]) == (0.48, 0.138)
    assert (even["seconds_settled"], cannikin["seconds_settled"]) == (0.48, 0.138)
    assert even["prediction_error_worst"] is None
    errors = [one["prediction_error"] for one in cannikin["epochs"][2:]]
    assert errors == pytest.approx([0.1, -0.5, 0, 0])
    assert cannikin["prediction_error_worst"] == pytest.approx(0.1)  # without the slowdown's epoch
    assert cannikin["prediction_error_median"] == pytest.approx(0)
    assert (cannikin["fastest_share"], cannikin["slowest_share"]) == (69 / 80, 11 / 80)
    assert cannikin["planning_share"] == pytest.approx(0.001)
    json.dumps(result(), allow_nan=False)


def test_the_median_is_of_the_epochs_after_learning() -> None:
    """A single late step, as of a busy machine, is not what a method is compared by."""
    asked = settings(slowdown=())
    seconds = {"even": [0.2, 0.2, 0.2, 0.2, 0.2], "cannikin": [0.2, 0.15, 0.1, 0.09, 0.3]}
    epochs = {name: [epoch((40, 40), one) for one in some] for name, some in seconds.items()}
    _, cannikin = runs(asked, NODES, 80, 100.0, epochs)
    assert (cannikin["seconds_best"], cannikin["seconds_settled"]) == (0.09, 0.1)
    assert cannikin["seconds_slowed"] == []
    assert cannikin["speedup"] == pytest.approx(0.2 / 0.1)


def test_total_batches_are_compared_by_progress() -> None:
    """Twice the batch in twice the time is less progress: (noise + B0) / (noise + B) of it."""
    asked = settings(batch=None, batch_range=(80, 160), slowdown=())
    twice = {"even": [epoch((40, 40), 0.2)], "cannikin": [epoch((80, 80), 0.4)]}
    even, cannikin = runs(asked, NODES, 80, 100.0, twice)
    assert even["epochs"][0]["pace"] == pytest.approx(0.2 / 80)
    assert cannikin["speedup"] == pytest.approx(180 / 260)


def test_the_table_has_a_column_for_each_method() -> None:
    lines = table.text(result()).splitlines()
    assert lines[0].split() == ["even", "split", "Cannikin"]
    rows = {line[:40].strip(): line[40:].split() for line in lines}
    (reached,) = (line for line in lines if line.startswith("epochs to within 3% of the best"))
    assert "after each slowdown" in reached
    assert reached.split()[-4:] == ["-,", "-", "2,", "2"]
    assert rows["step, first epoch, ms"] == ["240.0", "240.0"]
    assert rows["step, first epoch of each slowdown, ms"] == ["480.0", "240.0"]
    assert rows["planning, slowest rank, ms per plan"] == ["3.60", "1.66"]
    assert rows["speed-up against the even split"] == ["1.00", "3.48"]
    assert rows["share of the slowest rank, %"] == ["50.0", "13.8"]
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "emulated"
    rows = dict.fromkeys(line.count("|") for line in table.markdown(result()).splitlines())
    assert list(rows) == [4]
    assert "2 nodes of 16, chosen evenly, times per sample 1, 3;" in announced(result())


@pytest.mark.parametrize("batch_range", [None, (80, 160)])
def test_pictures_are_drawn(tmp_path: Path, batch_range: Any) -> None:
    paths = plots.draw(result(settings(batch_range=batch_range)), tmp_path)
    assert [path.name for path in paths] == list(plots.NAMES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_times_are_multiplied_from_an_epoch_on() -> None:
    slower = (Slowdown(0, 2.0, 3), Slowdown(1, 3.0, 4), Slowdown(0, 0.25, 5))
    assert [factors(slower, 2, number) for number in (2, 3, 4, 5)] == [
        [1, 1], [2, 1], [2, 3], [0.5, 3],
    ]  # fmt: skip


def test_gradients_are_noise_around_one() -> None:
    """Their variance is the noise scale by the batch, so that the noise scale is what was asked."""
    model = EmulatedNode(0, 400_000, 50.0)
    model(10, NodeModel(0, 0, 1e-9, 0), 0.0).backward()
    gradients = torch.cat([layer.grad for layer in model.layers if layer.grad is not None])
    assert len(gradients) == 400_000
    assert len(model.layers) == LAYERS
    assert gradients.mean() == pytest.approx(1, abs=0.02)
    assert gradients.var() == pytest.approx(5, rel=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cluster", "D"], "invalid choice: 'D'"),
        (["--methods", "ddp"], "unknown name 'ddp': choose from even, lb-bsp, adaptdl, cannikin"),
        (["--methods", "none"], "names no method"),
        (["--methods", "adaptdl"], "adaptdl chooses the total batch: give --batch-range"),
        (["--noise-scale", "9"], "give --batch-range"),
        (["--batch", "0"], "--batch: 0 is too small"),
        (["--batch-range", "64"], "'64' is no range: write SMALLEST:LARGEST"),
        (["--batch-range", "64:64"], "the first number has to be below the second"),
        (["--batch", "8", "--batch-range", "8:9"], "not allowed with argument --batch"),
        (["--epochs", "2"], "--epochs: 2 is too small: at least 3"),
        (["--steps", "3"], "--steps: 3 is too small: at least 4"),
        (["--step-time", "300"], "'300' has no unit"),
        (["--slowdown", "1:2"], "'1:2' is no slowdown: write RANK:FACTOR:EPOCH"),
        (["--slowdown", "1:x:3"], "'x' is no factor"),
        (["--slowdown", "1:nan:3"], "the factor nan is out of range"),
        (["--slowdown", "1:2:1"], "1 is too small: at least 2"),
    ],
)
def test_wrong_options_are_named(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "heterogeneous", *options])
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "bench heterogeneous --help" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("changed", "ranks", "words"),
    [
        ({}, 17, "--cluster B has 16 nodes, and this run has 17 ranks"),
        ({"batch": 3}, 4, "--batch: 3 samples are too few for 4 ranks"),
        ({"batch": None, "batch_range": (3, 9)}, 4, "--batch-range: 3 samples are too few"),
        ({"slowdown": (Slowdown(4, 2.0, 2),)}, 4, "--slowdown 4:2:2: this run has ranks 0 to 3"),
        ({"slowdown": (Slowdown(1, 2.0, 7),)}, 4, "--slowdown 1:2:7: this run has 6 epochs"),
    ],
)
def test_what_these_ranks_cannot_do_is_named(
    changed: dict[str, Any], ranks: int, words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        check(settings(**changed), ranks, 16)
