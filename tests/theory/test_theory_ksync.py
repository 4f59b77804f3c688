"""K-sync and its like in theory, beside plain loops, draws and closed forms."""

import heapq
import math
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from wagma.theory.distributions import Distribution
from wagma.theory.ksync import (
    METHODS,
    Simulation,
    error_bound,
    nonconvex_bound,
    order_statistic_mean,
    simulate,
    speedup_async_over_sync,
    update_time,
)
from wagma.theory.order_statistics import exponential_mean

P = 8
EXPONENTIAL, SHIFTED, PARETO = stats.expon(scale=0.2), stats.expon(1, 1), stats.pareto(2)
STEPS = np.array([5, 0, 0, 3, 2.0]), np.array([0, 1, 2, 3, 4, 9.0])
JUMPING = stats.rv_histogram(STEPS, density=False)()
LONG = pytest.mark.long


def generator(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---- order statistics ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "distribution",
    [
        EXPONENTIAL,
        SHIFTED,
        PARETO,
        stats.pareto(3, loc=1, scale=2),
        stats.gamma(2.5),
        stats.norm(1, 2),
        JUMPING,
        stats.poisson(3),
        stats.rv_discrete(values=([0, 3], [0.5, 0.5]))(),
    ],
)
def test_order_statistics_are_those_of_draws(distribution: Distribution) -> None:
    drawn = np.sort(distribution.rvs(size=(40_000, 4), random_state=generator()), axis=1)
    for k in (2, 4):
        error = 5 * drawn[:, k - 1].std() / math.sqrt(len(drawn))
        found = order_statistic_mean(distribution, k, 4)
        assert found == pytest.approx(drawn[:, k - 1].mean(), abs=error)


@pytest.mark.parametrize("distribution", [EXPONENTIAL, SHIFTED, PARETO, stats.gamma(2.5)])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (3, 8), (8, 8), (20, 50)])
def test_order_statistics_are_an_integral(distribution: Distribution, k: int, n: int) -> None:
    """E[X_(k)] = int Pr(X_(k) > x) dx, by the binomial distribution; all values are >= 0.

    Both are accurate to better than the 1e-8 that is promised, so that it is what is tested.
    """

    def later(x: float) -> float:
        # At least n - k + 1 values are above x: by sf, which is accurate where cdf is nearly 1.
        return float(stats.binom.sf(n - k, n, distribution.sf(x)))

    edges = [0.0, *distribution.ppf([0.05, 0.5, 0.9, 0.999]), math.inf]
    parts = [
        integrate.quad(later, *ends, epsabs=1e-13, epsrel=1e-11, limit=500)
        for ends in pairwise(edges)
    ]
    expected, error = (sum(column) for column in zip(*parts, strict=True))
    assert error < 1e-9 * expected
    assert order_statistic_mean(distribution, k, n) == pytest.approx(expected, rel=1e-8)


def test_order_statistics_of_closed_form() -> None:
    """None of these is recognised: they are integrated or summed, to 1e-8."""
    for k in (1, 20):
        assert order_statistic_mean(stats.uniform(), k, 20) == pytest.approx(k / 21, rel=1e-8)
        # Weibull's of exponent 1 is exponential, the Lomax distribution Pareto's less 1.
        found = order_statistic_mean(stats.weibull_min(1, scale=0.2), k, 20)
        assert found == pytest.approx(exponential_mean(0.2, k, 20), rel=1e-8)
        found = order_statistic_mean(stats.lomax(1.2), k, 20)
        assert found + 1 == pytest.approx(order_statistic_mean(stats.pareto(1.2), k, 20), rel=1e-8)
    assert order_statistic_mean(stats.geom(0.1), 1, 5) == pytest.approx(1 / (1 - 0.9**5), rel=1e-8)


@pytest.mark.parametrize(
    ("distribution", "k", "error", "said"),
    [
        (stats.pareto(0.5), 8, ValueError, "the shape 0.5, more than 1 is needed"),
        (stats.cauchy(), 8, ValueError, "tail of the distribution is too heavy"),
        (stats.expon(scale=[1, 2]), 8, TypeError, r"of the shape \(2,\)"),
        ("expon", 8, TypeError, "distribution is 'expon'"),
        (EXPONENTIAL, 9, ValueError, "k is 9: at most 8"),
        (EXPONENTIAL, 0, ValueError, "k is 0"),
    ],
)
def test_wrong_order_statistics_are_refused(
    distribution: Any, k: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        order_statistic_mean(distribution, k, P)


def test_the_exponential_form_needs_neither_scipy_nor_torch_nor_mpi() -> None:
    code = (
        "import sys\nfor name in ('scipy', 'torch', 'mpi4py'): sys.modules[name] = None\n"
        "import wagma.theory.ksync, wagma.theory.fastest_k\n"
        "from wagma.theory.order_statistics import exponential_mean\n"
        "assert exponential_mean(2.0, 1, 4) == 0.5\n"
        "try: wagma.theory.ksync.order_statistic_mean(object(), 1, 4)\n"
        "except TypeError: pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- simulation ----------------------------------------------------------------------------------


def by_events(
    method: str, learners: int, k: int, updates: int, draw: Callable[[], float]
) -> Simulation:
    """The methods as 2.3 tells them: a queue of learners that finish; (time, learner, version)."""
    queue = [(draw(), i, 0) for i in range(learners)]
    heapq.heapify(queue)
    times, staleness, taken, waiting = [], [], [], []
    while len(times) < updates:
        now, learner, computed_at = heapq.heappop(queue)
        version = len(times)
        taken.append(version - computed_at)
        waiting.append(learner)
        if len(taken) == k:
            times.append(now)
            staleness.append(taken)
            taken = []
            if method.endswith("-sync"):  # the others are cancelled
                waiting, queue = list(range(learners)), []
        elif method in ("k-sync", "k-async"):
            continue  # who has pushed waits for the update
        for other in waiting:
            heapq.heappush(queue, (now + draw(), other, len(times)))
        waiting = []
    found = np.array(staleness)
    return Simulation(np.array(times), found, found == 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("k", "distribution"),
    [
        (3, SHIFTED),
        *(
            pytest.param(k, one, marks=LONG)
            for k, one in [(1, SHIFTED), (3, EXPONENTIAL), (8, SHIFTED)]
        ),
    ],
)
def test_a_simulation_is_that_of_events(method: str, k: int, distribution: Any) -> None:
    """Two simulations with draws of their own: means agree within the error."""
    updates, scale, shift = 6000, distribution.std(), distribution.support()[0]
    rng = generator(7)
    other = by_events(method, P, k, updates, lambda: shift + scale * rng.exponential())
    found = simulate(method, distribution, P, k, updates, generator())
    assert found.times.shape == (updates,)
    assert found.staleness.shape == found.fresh.shape == (updates, k)
    assert (np.diff(found.times, prepend=0) >= 0).all()
    assert np.array_equal(found.fresh, found.staleness == 0)
    assert found.times[-1] == pytest.approx(other.times[-1], rel=0.04)
    assert np.diff(found.times).std() == pytest.approx(np.diff(other.times).std(), rel=0.1)
    if method.endswith("async"):
        assert found.staleness.mean() == pytest.approx(other.staleness.mean(), rel=0.01, abs=0.01)
        assert found.fresh.mean(axis=0) == pytest.approx(other.fresh.mean(axis=0), abs=0.025)
    else:
        assert found.fresh.all()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("k-async", [[0, 0], [1, 1], [1, 1], [1, 1]]),
        ("k-batch-async", [[0, 0], [1, 1], [2, 1], [2, 1]]),
    ],
)
def test_constant_times_take_turns(method: str, expected: list[list[int]]) -> None:
    """Four learners finish together. In k-batch-async the first of two does not wait for K."""
    one = stats.rv_discrete(values=([1], [1]))()
    found = simulate(method, one, 4, 2, 4, generator())
    assert found.times.tolist() == [1, 1, 2, 2]
    assert found.staleness.tolist() == expected


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("distribution", [EXPONENTIAL, SHIFTED, stats.lognorm(0.8)])
def test_mean_staleness(k: int, distribution: Distribution) -> None:
    for method, expected in (("k-async", P / k - 1), ("k-batch-async", (P - 1) / k)):
        found = simulate(method, distribution, P, k, 20_000, generator())
        assert found.staleness[2000:].mean() == pytest.approx(expected, rel=0.01)
    if distribution is EXPONENTIAL and k == 1:
        assert found.fresh.mean() == pytest.approx(1 / P, abs=0.01)  # Lemma 2


def test_many_updates_take_little_time() -> None:
    for method in METHODS:
        began = time.process_time()
        simulate(method, EXPONENTIAL, 16, 4, 100_000, generator())
        assert time.process_time() - began < 10


# ---- update times --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize(
    "distribution", [EXPONENTIAL, SHIFTED, pytest.param(stats.gamma(3), marks=LONG)]
)
def test_update_times_are_those_of_a_simulation(
    method: str, k: int, distribution: Distribution
) -> None:
    found = update_time(method, distribution, P, k)
    # Seeds differ from that of the function.
    drawn = simulate(method, distribution, P, k, 15_000, generator()).times
    mean = (drawn[-1] - drawn[1499]) / 13_500
    exact = distribution is EXPONENTIAL or method in ("k-sync", "k-batch-async")
    if distribution is SHIFTED and method == "k-async":
        assert found.kind == "upper bound"
        assert mean < found.mean * 1.02
        assert found.mean == pytest.approx(order_statistic_mean(distribution, k, P))
    else:
        assert found.kind == ("exact" if exact else "simulated")
        assert found.mean == pytest.approx(mean, rel=0.025)


def test_stale_gradients_of_pareto_times_do_not_win() -> None:
    """It is not new-longer-than-used; K = 1 and K = P have closed forms."""
    times = {k: update_time("k-async", PARETO, P, k) for k in (1, 6, 8)}
    assert {found.kind for found in times.values()} == {"simulated"}
    assert times[1].mean == pytest.approx(2 / P, rel=0.01)
    assert times[8].mean == pytest.approx(order_statistic_mean(PARETO, 8, P), rel=0.01)
    assert times[6].mean > 1.05 * update_time("k-sync", PARETO, P, 6).mean
    assert times[6] == update_time("k-async", PARETO, P, 6), "the seed is fixed"


def test_speedups_of_asynchrony() -> None:
    harmonic = sum(1 / i for i in range(1, 17))
    assert speedup_async_over_sync(EXPONENTIAL, 16) == pytest.approx(16 * harmonic)
    assert speedup_async_over_sync(SHIFTED, 16) == pytest.approx(16 * (1 + harmonic) / 2)
    assert speedup_async_over_sync(stats.uniform(), 1) == pytest.approx(1)


# ---- bounds --------------------------------------------------------------------------------------

CONVEX: dict[str, Any] = {"eta": 0.01, "L": 3.0, "sigma2": 4.0, "k": 2, "m": 5, "gap": 20.0}
STALE: dict[str, Any] = {"gamma": 0.3, "p0": 0.125}


def test_bounds_are_the_recursions_they_solve() -> None:
    """(29), (36) and Bottou et al. (4.14), iterated."""
    noise = 0.01**2 * 3.0 * 4.0 / (2 * 2 * 5)
    for method, more, share in (("k-sync", {}, 1.0), ("k-async", STALE, 1 - 0.3 + 0.0625)):
        errors = [20.0]
        for _ in range(300):
            errors.append((1 - 0.01 * 0.5 * share) * errors[-1] + noise)
        found = error_bound(method, np.arange(301), c=0.5, **CONVEX, **more)
        assert found == pytest.approx(np.array(errors))
        assert error_bound(method, 300, c=0.5, **CONVEX, **more) == pytest.approx(errors[-1])


def test_the_bound_of_gradients_is_the_sum_of_descents() -> None:
    """(37), update by update, along a path of F from the gap down to its minimum."""
    path = np.sort(generator().uniform(0, 20.0, size=52))[::-1]
    path[0], path[-1] = 20.0, 0.0
    noise = 0.01**2 * 3.0 * 4.0 / (2 * 2 * 5)
    for method, more, share in (("k-sync", {}, 1.0), ("k-async", STALE, 1 - 0.3 + 0.0625)):
        squares = []
        for before, after in pairwise(path):
            # F(w_{j+1}) <= F(w_j) - eta gamma' / 2 |grad F(w_j)|^2 + noise, taken as equal.
            squares.append((before - after + noise) / (0.01 * share / 2))
        assert nonconvex_bound(method, 50, **CONVEX, **more) == pytest.approx(np.mean(squares))


def test_bounds_hold_for_sgd() -> None:
    """F = |w|^2 with normal noise of the gradient, so that M_G = 0, at the largest learning rate.

    Half of either floor would be too low.
    """
    rng, k, m = generator(), 3, 4
    known: dict[str, Any] = {"eta": 1 / 4, "L": 2.0, "sigma2": 4.0, "k": k, "m": m, "gap": 20.0}
    weights, errors = np.ones((2000, 20)), []
    for _ in range(200):
        errors.append(float((weights**2).sum(axis=1).mean()))
        noise = rng.normal(scale=math.sqrt(4.0 / 20 / (k * m)), size=weights.shape)
        weights = weights - 1 / 4 * (2 * weights + noise)
    updates, found = np.arange(200), np.array(errors)
    bound = np.asarray(error_bound("k-sync", updates, c=2.0, **known))
    assert (found <= bound * 1.001).all()
    assert found[-1] > bound[-1] / 2
    bound = np.asarray(nonconvex_bound("k-sync", updates, **known))
    means = (4 * found).cumsum() / (updates + 1)
    assert (means <= bound).all()
    assert means[-1] > bound[-1] / 2


def test_stale_gradients_allow_a_larger_rate() -> None:
    """Theorem 3 needs eta c gamma' < 1: K = 8 and M_G = 0 allow eta = 8 / 2 L, eta c = 1.2."""
    rates = CONVEX | {"eta": 1.2, "k": 8}
    found = error_bound("k-async", np.arange(3), c=1.0, **rates, gamma=0.5)
    errors = [20.0]
    for _ in range(2):
        errors.append((1 - 1.2 * 0.5) * errors[-1] + 1.2**2 * 3.0 * 4.0 / (2 * 8 * 5))
    assert found == pytest.approx(errors)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (
            {"method": "async"},
            ValueError,
            "'async': one of k-sync, k-batch-sync, k-async, k-batch-a",
        ),
        ({"j": -1}, ValueError, "j has -1.0"),
        (
            {"eta": 3},
            ValueError,
            "eta is 3.0: the bound needs eta c gamma' < 1 with gamma' = 0.7625, less than 2.62",
        ),
        (
            {"method": "k-sync", "eta": 2.5, "gamma": 0, "p0": 0},
            ValueError,
            "eta is 2.5: the bound needs eta c < 1, less than 2",
        ),
        ({"c": 4}, ValueError, "c is 4.0: at most L = 3.0"),
        ({"sigma2": -1}, ValueError, "sigma2 is -1.0"),
        ({"gap": math.nan}, ValueError, "gap is nan"),
        ({"k": 0}, ValueError, "k is 0"),
        ({"m": 1.5}, TypeError, "m is 1.5"),
        ({"gamma": 1.5}, ValueError, "gamma is 1.5: at most 1"),
        ({"gamma": 1, "p0": 0}, ValueError, "gamma < 1 is needed"),
        ({"method": "k-sync"}, ValueError, "gamma is 0.3: all gradients of k-sync are fresh"),
    ],
)
def test_wrong_bounds_are_refused(wrong: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        error_bound(**{"method": "k-async", "j": 3, "c": 0.5} | CONVEX | STALE | wrong)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("async", EXPONENTIAL, 8, 2), ValueError, "method is 'async'"),
        (("k-sync", EXPONENTIAL, 8, 9), ValueError, "k is 9: at most 8"),
        (("k-sync", EXPONENTIAL, 0, 1), ValueError, "learners is 0"),
        (("k-sync", stats.norm(9, 1), 8, 2), ValueError, "values from -inf: times are at least 0"),
        (("k-async", stats.pareto(1), 8, 2), ValueError, "the mean inf: a finite mean"),
        (("k-sync", 0.2, 8, 2), TypeError, "distribution is 0.2"),
    ],
)
def test_wrong_times_are_refused(arguments: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        update_time(*arguments)
    if "mean" not in said:
        with pytest.raises(error, match=said):
            simulate(*arguments, 10, generator())
