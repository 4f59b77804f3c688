"""The noise scale of uneven batches, beside simulated gradients."""

import json
import math
from typing import Any, Literal

import numpy as np
import pytest

from wagma.theory.cannikin import NoiseScale, NoiseScaleAverage, noise_scale

Weights = Literal["optimal", "paper"]
BATCHES = (4, 10, 30, 100)
TRUE = np.array([0.9, -0.3, 0.4, *[0.05] * 17])
DEVIATIONS = np.linspace(0.5, 3, 20)


def gradients(batches: tuple[int, ...], draws: int) -> tuple[Any, Any]:
    """Squared norms of nodes' mean gradients, and of their weighted mean: [draws, n], [draws]."""
    rng = np.random.default_rng(11)
    sizes = np.array(batches, float)
    drawn = rng.standard_normal((draws, len(sizes), len(TRUE))) * DEVIATIONS
    local = TRUE + drawn / np.sqrt(sizes)[:, None]
    mean = (local * (sizes / sizes.sum())[:, None]).sum(axis=1)
    return (local**2).sum(axis=2), (mean**2).sum(axis=1)


def estimates(batches: tuple[int, ...], weights: Weights, local: Any, whole: Any) -> Any:
    """Both estimates of every draw, [2, draws]: they are linear in the squared norms."""
    parts = [noise_scale(batches, unit, 0.0, weights) for unit in np.eye(len(batches))] + [
        noise_scale(batches, np.zeros(len(batches)), 1.0, weights)
    ]
    norms = np.concatenate([local, whole[:, None]], axis=1)
    return np.array([[p.sqnorm for p in parts], [p.trace for p in parts]]) @ norms.T


@pytest.mark.parametrize("weights", ["optimal", "paper"])
@pytest.mark.parametrize("batches", [BATCHES, (8, 8), (3, 50)])
def test_estimates_are_unbiased(batches: tuple[int, ...], weights: Weights) -> None:
    draws = 40_000
    found = estimates(batches, weights, *gradients(batches, draws))
    errors = found.std(axis=1) / math.sqrt(draws)
    assert (abs(found.mean(axis=1) - [(TRUE**2).sum(), (DEVIATIONS**2).sum()]) < 4 * errors).all()


def single(batches: tuple[int, ...], local: Any, whole: Any) -> Any:
    """What every node estimates alone: (10), [2, n, draws]."""
    b = np.array(batches, float)
    total = b.sum()
    sqnorms = (total * whole[:, None] - b * local) / (total - b)
    traces = b * total * (local - whole[:, None]) / (total - b)
    return np.array([sqnorms.T, traces.T])


def test_no_weights_have_less_variance() -> None:
    """The weights of least variance, from the covariance of what nodes estimate alone."""
    local, whole = gradients(BATCHES, 40_000)
    optimal = estimates(BATCHES, "optimal", local, whole).var(axis=1)
    paper = estimates(BATCHES, "paper", local, whole).var(axis=1)
    for which, alone in enumerate(single(BATCHES, local, whole)):
        best = np.linalg.solve(np.cov(alone), np.ones(len(BATCHES)))
        least = ((best / best.sum()) @ alone).var()
        plain = alone.mean(axis=0).var()
        assert least <= optimal[which] <= 1.01 * least
        assert optimal[which] < plain
        assert optimal[which] < paper[which]
    # The printed weights of S are worse than none at all.
    assert paper[1] > single(BATCHES, local, whole)[1].mean(axis=0).var()


def test_the_printed_weights() -> None:
    """Theorem 4.1, written out for three nodes."""
    b, local, whole = [2.0, 3.0, 5.0], np.array([4.0, 3.0, 2.0]), 1.5
    B = 10.0
    A_G, A_S = np.empty((3, 3)), np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            rests = (B - b[i]) * (B - b[j])
            A_G[i, j] = (B**2 - b[i] ** 2 - b[j] ** 2) / (B * rests)
            A_S[i, j] = b[i] * b[j] * (B - b[i] - b[j]) / rests
        A_G[i, i] = (B + 2 * b[i]) / (B**2 - B * b[i])
        A_S[i, i] = B * b[i] / (B - b[i])
    alone = single((2, 3, 5), local[None], np.array([whole]))[:, :, 0]
    ones = np.ones(3)
    expected = [
        ones @ np.linalg.inv(A) @ each / (ones @ np.linalg.inv(A) @ ones)
        for A, each in zip((A_G, A_S), alone, strict=True)
    ]
    found = noise_scale(b, local, whole, "paper")
    assert [found.sqnorm, found.trace] == pytest.approx(expected)


def test_equal_batches_give_the_usual_estimate() -> None:
    """McCandlish et al. (2018), with the small batches' mean; both weights are equal then."""
    local, whole, b, B = np.array([3.0, 5.0, 4.0, 8.0]), 2.0, 8, 32
    small = local.mean()
    expected = [(B * whole - b * small) / (B - b), (small - whole) / (1 / b - 1 / B)]
    for weights in ("optimal", "paper"):
        found = noise_scale([b] * 4, local, whole, weights)  # type: ignore[arg-type]
        assert [found.sqnorm, found.trace] == pytest.approx(expected)
    assert found.scale == pytest.approx(expected[1] / expected[0])


def test_nodes_without_samples_are_left_out() -> None:
    assert noise_scale([4, 0, 8], [3, 0, 2], 1) == noise_scale([4, 8], [3, 2], 1)


def test_scales_of_estimates_below_zero() -> None:
    assert NoiseScale(2.0, 8.0).scale == 4
    assert (NoiseScale(-1.0, 8.0).scale, NoiseScale(2.0, -8.0).scale) == (math.inf, 0)
    assert NoiseScale(0.0, 0.0).scale == 0


def test_moving_average() -> None:
    average = NoiseScaleAverage(0.75)
    assert average.average == NoiseScale(0, 0)
    assert average.update(NoiseScale(2, 8)) == NoiseScale(2, 8)
    state = json.loads(json.dumps(average.state_dict()))
    second = average.update(NoiseScale(1, -6))
    assert second.sqnorm == pytest.approx((0.75 * 2 + 1) / 1.75)
    assert second.trace == pytest.approx((0.75 * 8 - 6) / 1.75)
    loaded = NoiseScaleAverage(0.75)
    loaded.load_state_dict(state)
    assert loaded.update(NoiseScale(1, -6)) == second
    with pytest.raises(ValueError, match="finite numbers are needed; skip"):
        loaded.update(NoiseScale(math.nan, 1))
    with pytest.raises(ValueError, match="state has no trace"):
        loaded.load_state_dict({"sqnorm": 1, "weight": 1})
    assert loaded.average == second


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: noise_scale([8], [1], 1), r"node 0 has the whole batch, .* undefined"),
        (lambda: noise_scale([0, 8, 0], [0, 1, 0], 1), "node 1 has the whole batch"),
        (lambda: noise_scale([0, 0], [0, 1], 1), "no node has any"),
        (lambda: noise_scale([4, 4], [1, 2, 3], 1), "local_sqnorms has the shape"),
        (lambda: noise_scale([4, 4], [1, -2], 1), r"local_sqnorms\[1\] is -2.0"),
        (lambda: noise_scale([4, 4], [1, 2], math.nan), "global_sqnorm is nan"),
        (lambda: noise_scale([4, 4], [1, 2], 1, "mean"), "weights is 'mean': one of optimal"),  # type: ignore[arg-type]
        (lambda: NoiseScaleAverage(1), "smoothing is 1.0"),
    ],
)
def test_bad_values(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
