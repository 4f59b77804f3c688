"""Fastest-k SGD in theory: Example 1 of the paper, and simulations beside plain loops."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from wagma.theory.fastest_k import (
    error_bound,
    fixed_k_crossings,
    mean_times,
    simulate,
    switch_times,
)

# Example 1: the mean response time is 1/5 where lambda = 1/5 is printed.
EXAMPLE: dict[str, Any] = {
    "eta": 0.001,
    "L": 2,
    "sigma2": 10,
    "c": 1,
    "s": 10,
    "gap": 100,
    "mean_times": mean_times(5, stats.expon(scale=1 / 5)),
}


def test_mean_times() -> None:
    exponential = [sum(1 / i for i in range(50 - k + 1, 51)) for k in range(1, 51)]
    assert mean_times(50, stats.expon()) == pytest.approx(exponential)
    assert mean_times(9, stats.uniform()) == pytest.approx(np.arange(1, 10) / 10, rel=1e-8)


def test_the_best_fixed_k_of_the_example() -> None:
    crossings = fixed_k_crossings(**EXAMPLE)
    assert crossings[[0, -1]] == pytest.approx([1098, 6623], abs=1)
    times = np.array([1, 1000, 1097, 1099, 2000, 2100, 3500, 3700, 6621, 6624, 1e5])
    bounds = np.array([error_bound(times, k, **EXAMPLE) for k in range(1, 6)])
    assert (bounds.argmin(axis=0) + 1).tolist() == [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert bounds.argmin(axis=0).tolist() == np.searchsorted(crossings, times).tolist()


def test_the_bound_of_an_iteration() -> None:
    """After j mean times of k it is that of j iterations: Proposition 1."""
    error, floor = 100.0, 0.001 * 2 * 10 / (2 * 1 * 3 * 10)
    for _ in range(40):
        error = floor + (1 - 0.001) * (error - floor)
    assert error_bound(40 * EXAMPLE["mean_times"][2], 3, **EXAMPLE) == pytest.approx(error)
    assert error_bound(0, 3, **EXAMPLE) == 100


def test_the_switch_times_of_the_example() -> None:
    """Theorem 1 as printed; and the policy that always takes the bound that falls fastest."""
    found = switch_times(**EXAMPLE)
    mu, eta, L, sigma2, c, s, error = EXAMPLE["mean_times"], 0.001, 2, 10, 1, 10, 100.0
    printed, now = [], 0.0
    for k in range(1, 5):
        wait = math.log(mu[k] - mu[k - 1]) - math.log(eta * L * sigma2 * mu[k - 1])
        wait += math.log(2 * c * k * (k + 1) * s * error - eta * L * (k + 1) * sigma2)
        wait *= mu[k - 1] / -math.log(1 - eta * c)
        bound = EXAMPLE | {"gap": error}
        now, error = now + wait, float(error_bound(wait, k, **bound))
        printed.append(now)
    assert found == pytest.approx(printed)
    assert found[0] == pytest.approx(496.9, abs=0.05), "589 is printed"
    floors = eta * L * sigma2 / (2 * c * s * np.arange(1, 6))
    error, tick, greedy = 100.0, 0.02, []
    for i in range(int(1200 / tick)):
        slopes = math.log(1 - eta * c) * (error - floors) / mu
        while slopes.argmin() > len(greedy):
            greedy.append(i * tick)
        error += tick * float(slopes.min())
    assert greedy == pytest.approx(found, rel=1e-3)


def test_times_of_special_cases() -> None:
    assert switch_times(**EXAMPLE | {"gap": 1e-4}).tolist() == [0] * 4, "below all floors"
    assert fixed_k_crossings(**EXAMPLE | {"gap": 1e-4}).tolist() == [0] * 4
    assert switch_times(**EXAMPLE | {"sigma2": 0}).tolist() == [math.inf] * 4
    assert fixed_k_crossings(**EXAMPLE | {"sigma2": 0}).tolist() == [math.inf] * 4
    assert switch_times(**EXAMPLE | {"mean_times": [1.0]}).shape == (0,)
    # Whoever takes equally long is not worth the others' noise.
    assert fixed_k_crossings(**EXAMPLE | {"mean_times": [1.0, 1.0, 2.0]})[0] == 0
    assert switch_times(**EXAMPLE | {"mean_times": [1.0, 1.0, 2.0]})[0] == 0


# ---- simulation ----------------------------------------------------------------------------------


def regression(rows: int = 2000, columns: int = 100) -> tuple[Any, Any]:
    """The data of V-A."""
    rng = np.random.default_rng(1)
    data = rng.integers(1, 11, (rows, columns)).astype(float)
    return data, data @ rng.integers(1, 101, columns) + rng.standard_normal(rows)


def test_a_simulation_is_that_of_plain_loops() -> None:
    X, y = regression(24, 3)
    rng = np.random.default_rng(3)
    policy: dict[str, Any] = {"step": 2, "thresh": 3, "burnin": 10, "k_max": 6}
    found = simulate(X, y, 8, 2, eta=1e-2, steps=200, rng=rng, **policy)
    rng = np.random.default_rng(3)
    w, now, before, k, count, since, down = np.zeros(3), 0.0, None, 2, 0, 1, 0
    best = np.linalg.solve(X.T @ X, X.T @ y)
    least = 0.5 * np.mean((X @ best - y) ** 2)
    for i in range(200):
        responses = rng.exponential(size=8)
        fastest = sorted(range(8), key=lambda worker: responses[worker])[:k]
        now, down = now + responses[fastest[-1]], down + k
        assert found.ks[i] == k
        assert found.downloads[i] == down
        partial = [
            np.mean([X[row] * (X[row] @ w - y[row]) for row in range(3 * j, 3 * j + 3)], axis=0)
            for j in fastest
        ]
        gradient = np.mean(partial, axis=0)
        w = w - 1e-2 * gradient
        assert found.times[i] == pytest.approx(now)
        assert found.errors[i] == pytest.approx(0.5 * np.mean((X @ w - y) ** 2) - least, rel=1e-6)
        if before is not None:
            count += 1 if gradient @ before < 0 else -1
        if count > 3 and since > 10 and k + 2 <= 6:
            k, count, since = k + 2, 0, 0
        before, since = gradient, since + 1
    assert k == 6
    assert found.weights == pytest.approx(w)
    assert found.uploads[[0, -1]].tolist() == [8, 1600]


def test_an_adaptive_k_beats_fixed_ones() -> None:
    """V-A: near t = 2000 it has the error that k = 40 needs about 6000 for."""
    X, y = regression()

    def run(k: int, steps: int, **policy: Any) -> Any:
        return simulate(X, y, 50, k, eta=5e-4, steps=steps, rng=np.random.default_rng(2), **policy)

    def error(run: Any, since: float) -> float:
        """Return a median: errors of single iterations scatter."""
        assert run.times[-1] > since + 300
        return float(np.median(run.errors[(run.times > since) & (run.times < since + 300)]))

    adaptive = run(10, 4600, step=10, thresh=10, burnin=200, k_max=40)
    assert sorted(set(adaptive.ks.tolist())) == [10, 20, 30, 40]
    reached = error(adaptive, 2000)
    assert reached < error(run(20, 4700), 2000) / 3, "k = 20 stays above its floor"
    slow = run(40, 4200)
    assert reached < error(slow, 2000) / 1000
    assert reached < error(slow, 4900) / 3
    assert reached == pytest.approx(error(slow, 6000), rel=0.3)


X, Y = np.ones((8, 2)), np.ones(8)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"X": np.ones(8)}, ValueError, r"X has the shape \(8,\)"),
        ({"n": 3, "k": 1}, ValueError, "m a multiple of n = 3"),
        ({"y": np.ones(4)}, ValueError, r"y has the shape \(4,\): \(8,\)"),
        ({"y": np.full(8, np.nan)}, ValueError, "y has values that are not finite"),
        ({"k": 5}, ValueError, "k is 5: at most 4"),
        ({"eta": 0}, ValueError, "eta is 0.0"),
        ({"steps": 0}, ValueError, "steps is 0"),
        ({"burnin": 3}, ValueError, "step is 0: k is fixed"),
        ({"step": 1, "k_max": 1}, ValueError, "k_max is 1: at least 2"),
        ({"eta": 1e9, "steps": 100}, ValueError, "eta is 1000000000.0: the weights are not finite"),
    ],
)
def test_wrong_simulations_are_refused(
    wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    good = {"X": X, "y": Y, "n": 4, "k": 2, "eta": 0.1, "steps": 2}
    with pytest.raises(error, match=said), np.errstate(over="ignore", invalid="ignore"):
        simulate(**good | wrong, rng=np.random.default_rng(1))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mean_times": [2.0, 1.0]}, r"mean_times is \[2.0, 1.0\]"),
        ({"mean_times": [[1.0]]}, r"mean_times has the shape \(1, 1\)"),
        ({"mean_times": [0.0, 1.0]}, r"mean_times is \[0.0, 1.0\]"),
        ({"s": 0}, "s is 0"),
        ({"eta": 1}, "eta is 1.0: the bound needs eta c < 1"),
    ],
)
def test_wrong_bounds_are_refused(wrong: dict[str, Any], said: str) -> None:
    for call in (fixed_k_crossings, switch_times, lambda **some: error_bound(1, 1, **some)):
        with pytest.raises(ValueError, match=said):
            call(**EXAMPLE | wrong)
