"""Cannikin's figures made again: clock, network and training, and the whole small version."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wagma.cli import main
from wagma.reproduce import cannikin
from wagma.reproduce.cannikin import adaptation, batch_times, convergence
from wagma.reproduce.cannikin.simulated import EXACT, Clock, Errors, follow
from wagma.reproduce.cannikin.training import Data, Gradient, Network, split, train
from wagma.reproduce.digits import load
from wagma.theory.cannikin import batch_time, make_planner, opt_perf
from wagma.theory.cannikin.clusters import cluster


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def digits() -> Data:
    images, labels = load()
    return split(convergence.SCALE * images, labels, rng())


# ---- the clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "bottleneck"), [(64, "compute"), (256, "communication")])
def test_a_clock_without_errors_shows_the_model(batch: int, bottleneck: str) -> None:
    model = cluster("B", batch=batch)
    batches = [7, 6, 8, 7, 3, 3, 2, 4, *[3] * 8]
    slowest = int(model.lines.times(np.array(batches, np.float64)).argmax())
    assert model.bottlenecks(np.array(batches, np.float64))[slowest] == bottleneck
    epoch = Clock(model, rng(), EXACT).epoch(batches, 3)
    assert epoch.seconds == pytest.approx([batch_time(model, batches)] * 3)
    node, measured = model.nodes[4], epoch.measured
    assert measured.a[4] == pytest.approx(node.q * 3 + node.s)
    assert measured.P[4] == pytest.approx(node.k * 3 + node.m)
    assert measured.gammas == pytest.approx([model.gamma] * 16)
    assert measured.overlap_times == pytest.approx([model.overlap_time] * 16)
    assert measured.last_bucket_times == pytest.approx([model.last_bucket_time] * 16)


def test_errors_are_as_large_as_said() -> None:
    model = cluster("A", batch=90)
    batches = [30, 30, 30]
    errors = Errors(step=0.02, epoch=0.0, gamma=(0.0, 0.1), communication=0.5)
    clock = Clock(model, rng(), errors)
    epochs = [clock.epoch(batches, 50) for _ in range(100)]
    # The slowest node alone decides: the others are far from it.
    seconds = np.concatenate([epoch.seconds for epoch in epochs])
    slow = model.nodes[2]
    parts = np.array([slow.q * 30 + slow.s, slow.k * 30 + slow.m])
    assert seconds.mean() == pytest.approx(batch_time(model, batches), rel=0.002)
    assert seconds.std() == pytest.approx(0.02 * np.hypot(*parts), rel=0.03)
    gammas = np.array([epoch.measured.gammas for epoch in epochs])
    spreads = np.sort(gammas.std(axis=0)) / model.gamma
    assert spreads == pytest.approx([0, 0.05, 0.1], abs=0.02)
    overlaps = np.array([epoch.measured.overlap_times for epoch in epochs])
    assert overlaps.min() >= model.overlap_time, "waiting only adds"
    assert overlaps.mean() == pytest.approx(1.5 * model.overlap_time, rel=0.1)


def test_following_a_planner() -> None:
    model = cluster("A", batch=128)
    found = follow(make_planner(3, 128), Clock(model, rng(), EXACT), 4, 2)
    assert found.times == pytest.approx(found.measured)
    assert found.times[0] == batch_time(model, [43, 43, 42])
    assert found.times[2] == found.times[3] == pytest.approx(opt_perf(model, 128).time, rel=0.02)
    assert found.plans[2].predicted == pytest.approx(found.times[2])


# ---- training ------------------------------------------------------------------------------------


def test_the_gradient_is_that_of_the_whole_batch() -> None:
    """Against differences of the loss, and nodes one by one."""
    data = digits()
    network = Network(65, 5, rng())
    images, labels = data.images[4, :9], data.labels[:9]
    found = network.gradient(images, labels, [2, 3, 4])
    squares = 0.0
    for weights, gradient in zip(network.weights, found.mean, strict=True):
        for place in [(4, 2), (len(weights) - 1, 4), (len(weights) // 2, 0)]:
            kept, losses = weights[place], []
            for change in (1e-5, -1e-5):
                weights[place] = kept + change
                losses.append(network.loss(images, labels))
            weights[place] = kept
            slope = (losses[0] - losses[1]) / 2e-5
            assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-8)
        squares += float((gradient**2).sum())
    assert found.sqnorm == pytest.approx(squares)
    for (first, last), norm in zip(((0, 2), (2, 5), (5, 9)), found.local_sqnorms, strict=True):
        alone = network.gradient(images[first:last], labels[first:last], [last - first])
        assert norm == pytest.approx(alone.sqnorm)
        assert alone.local_sqnorms == pytest.approx([alone.sqnorm])


def test_images_are_shifted_by_a_pixel() -> None:
    images, labels = load()
    data = split(images, labels, rng())
    assert data.images.shape == (9, len(data.labels), 65)
    assert len(data.labels) + len(data.test_labels) == len(images)
    square = data.images[4, 3, :-1].reshape(8, 8)
    up_left, down = (data.images[i, 3, :-1].reshape(8, 8) for i in (8, 1))
    assert np.array_equal(up_left[:-1, :-1], square[1:, 1:])
    assert not up_left[-1].any()
    assert not up_left[:, -1].any()
    assert np.array_equal(down[1:], square[:-1])
    assert (data.images[:, :, -1] == data.images[4, 0, -1]).all()


def test_a_run_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, step = [], Network.step

    def spy(network: Network, gradient: Gradient, rate: float) -> None:
        rates.append(rate)
        step(network, gradient, rate)

    monkeypatch.setattr(Network, "step", spy)
    model = cluster("B", batch=64)
    planner = make_planner(16, (32, 256))
    curve = train(planner, Clock(model, rng()), digits(), rng(), rate=0.5, seconds=80)
    epochs = len(curve.total_batch)
    steps = [max(3, round(1348 / total)) for total in curve.total_batch]
    assert np.bincount(curve.epoch).tolist() == steps
    assert (
        np.diff(curve.samples, prepend=0).tolist() == np.repeat(curve.total_batch, steps).tolist()
    )
    assert curve.seconds[-1] >= 80 > curve.seconds[-steps[-1] - 1]
    assert curve.accuracy[-1] > 0.4 > curve.accuracy[0]
    assert len(curve.noise_scale) == epochs
    assert rates == pytest.approx(0.5 * np.repeat(curve.gain, steps))
    # AdaScale by the noise scale that was known when the epoch began.
    known = [0.0, *curve.noise_scale[:-1]]
    for total, scale, gain in zip(curve.total_batch, known, curve.gain, strict=True):
        assert gain == pytest.approx((scale / 32 + 1) / (scale / total + 1))
    assert curve.total_batch[:2] == [32, 32]
    assert curve.gain[-1] > 1.2


def test_a_target_ends_the_training() -> None:
    model = cluster("B", batch=64)
    planner = make_planner(16, 64, baseline="even")
    curve = train(planner, Clock(model, rng()), digits(), rng(), rate=0.5, seconds=999, target=0.3)
    last = curve.epoch == curve.epoch[-1]
    assert curve.accuracy[last].mean() >= 0.3
    assert curve.seconds[-1] < 900
    reached = convergence._reached(curve, 0.3)
    smooth = [curve.accuracy[max(0, i - 9) : i + 1].mean() for i in range(len(curve.accuracy))]
    assert reached == curve.seconds[next(i for i, value in enumerate(smooth) if value >= 0.3)]
    assert convergence._reached(curve, 0.99) == np.inf


# ---- figures -------------------------------------------------------------------------------------


def test_lb_bsp_settles() -> None:
    """Its best plan is nearly the best one where 5 samples are few."""
    model = cluster("B", batch=8192)
    settled = batch_times._settled(Clock(model, rng(), EXACT), 8192)
    assert sum(settled) == 8192
    assert batch_time(model, settled) == pytest.approx(opt_perf(model, 8192).time, rel=0.02)


def test_the_first_epoch_near_the_best() -> None:
    assert adaptation._first_near([2.0, 1.04, 1.02, 1.2], 1.0) == 3
    assert adaptation._first_near([2.0, 1.04], 1.0) == np.inf


@pytest.mark.long
def test_the_small_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "cannikin", "--out", str(tmp_path), "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    document = json.loads((tmp_path / "cannikin.json").read_text())
    figures = document["figures"]
    assert list(figures) == [picture.name for picture in cannikin.PICTURES]
    for name in figures:
        with Image.open(tmp_path / f"{name}.png") as image:
            assert min(image.size) > 300
    # The table, and the JSON with the same rows.
    rows = [tuple(row.values()) for row in document["claims"]]
    assert lines[:2] == ["| claim | paper | here |", "| --- | --- | --- |"]
    assert lines[2:-1] == [f"| {' | '.join(row)} |" for row in rows]
    assert lines[-1].endswith("6 pictures in " + str(tmp_path))
    assert not any("nan" in line for line in lines)
    # What the paper claims.
    for case in figures["fig9"].values():
        methods = case["methods"]
        assert methods["cannikin"]["last_first_epoch_near_the_best"] == 3
        assert methods["lb-bsp"]["times"][2] > 1.1 * case["best"]
    for times in figures["fig10"]["communication"].values():
        for method, values in times.items():
            pairs = zip(values, times["cannikin"], strict=True)
            assert all(one is None or one >= best for one, best in pairs), method
    assert figures["prediction"]["largest"]["inverse variances"] < 0.07
    gains = figures["spread"]["gain_by_total_batch"]["2048"]
    assert gains == pytest.approx(figures["spread"]["limit"], rel=0.08)
    saved = figures["fig5-8"]["less_than"]
    assert saved["even"][0] > 0.2
    assert saved["adaptdl"][0] > 0
