"""The theory of DropCompute, beside draws, plain loops, closed forms and the paper's figures."""

import math
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.special import gammaln

from wagma.theory.distributions import Distribution
from wagma.theory.dropcompute import (
    ThresholdChoice,
    choose_threshold,
    delays,
    effective_speedup,
    expected_completed,
    expected_step_time,
    optimal_threshold,
    slowdown_ratio,
)
from wagma.theory.maxima import expected_maximum

MU, SIGMA, M, N = 0.5, 0.1, 12, 64
Floats = npt.NDArray[np.float64]


def lognormal(mean: float, variance: float) -> Distribution:
    sigma = math.sqrt(math.log1p(variance / mean**2))
    return stats.lognorm(sigma, scale=mean * math.exp(-(sigma**2) / 2))  # type: ignore[no-any-return]


def simulated(steps: int = 2000, workers: int = N) -> Floats:
    """Cumulative times of normal micro-batches, [steps, workers, M]."""
    times = np.random.default_rng(5).normal(MU, SIGMA, (steps, workers, M))
    return times.cumsum(axis=2)


# ---- the formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 8, 64])
def test_step_time_is_that_of_the_slowest(workers: int) -> None:
    drawn = simulated(workers=workers)[:, :, -1].max(axis=1)
    error = 4 * drawn.std() / math.sqrt(len(drawn)) + 0.05 * math.sqrt(M) * SIGMA
    assert expected_step_time(MU, SIGMA, M, workers) == pytest.approx(drawn.mean(), abs=error)


def test_completed_micro_batches() -> None:
    ends = simulated(200)
    thresholds = np.array([0.3, 1.0, 3.0, 5.5, 6.0, 6.5, 9.0])
    drawn = [(ends < tau).sum(axis=2).mean() for tau in thresholds]
    assert expected_completed(MU, SIGMA, M, thresholds) == pytest.approx(drawn, abs=0.02)
    assert expected_completed(MU, SIGMA, M, math.inf) == M


@pytest.mark.parametrize("comm", [0.0, 0.4])
def test_speedup_is_that_of_throughputs(comm: float) -> None:
    """Algorithm 2 on draws, and the formula with E[T] as drawn."""
    ends = simulated()
    slowest = ends[:, :, -1].max(axis=1)
    thresholds = np.array([5.0, 6.0, 6.2, 6.5, 7.0, 20.0])
    drawn = []
    for tau in thresholds:
        shares = (ends < tau).mean(axis=(1, 2))
        drawn.append((shares * (slowest + comm) / (np.minimum(tau, slowest) + comm)).mean())
    given = effective_speedup(thresholds, MU, SIGMA, M, N, comm, step_time=slowest.mean())
    assert given == pytest.approx(drawn, abs=4e-3)
    assert effective_speedup(thresholds, MU, SIGMA, M, N, comm) == pytest.approx(drawn, abs=8e-3)


def test_speedup_given_the_time_of_a_step() -> None:
    """Times with a heavy tail: (4) is too low, and with it the speed-up."""
    times = 0.45 + delays(0.45, (400, 200, M), np.random.default_rng(8))
    slowest = times.sum(axis=2).max(axis=1).mean()
    tau, mean, deviation = 8.0, times.mean(), times.std()
    (drawn,) = choose_threshold(times, np.zeros(400), [tau]).speedups
    given = effective_speedup(tau, mean, deviation, M, 200, step_time=slowest)
    assert given == pytest.approx(drawn, abs=0.02)
    assert effective_speedup(tau, mean, deviation, M, 200) < drawn - 0.05


@pytest.mark.parametrize("comm", [0.0, 3.0])
def test_dropping_nothing_changes_nothing(comm: float) -> None:
    """As printed, (11) with (12) would be below 1 here."""
    assert effective_speedup(math.inf, MU, SIGMA, M, N, comm) == 1
    assert effective_speedup(1e9, MU, SIGMA, M, N, comm, step_time=7.0) == pytest.approx(1)


def test_thresholds_in_any_shape() -> None:
    table = np.array([[4.0, 5.0, 6.0], [6.5, 7.0, math.inf]])
    for result, one in (
        (expected_completed(MU, SIGMA, M, table), lambda t: expected_completed(MU, SIGMA, M, t)),
        (
            effective_speedup(table, MU, SIGMA, M, N, 0.1),
            lambda t: effective_speedup(t, MU, SIGMA, M, N, 0.1),
        ),
    ):
        assert isinstance(result, np.ndarray)
        assert result.shape == table.shape
        single = [one(float(tau)) for tau in table.flat]
        assert all(type(value) is float for value in single)
        assert result.ravel().tolist() == single
    assert expected_completed(MU, 0.0, 3, [0.5, 0.50001, 1.2]).tolist() == [0, 1, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("ratio", [1e-4, 0.02, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("micro_batches", [1, 3, 12, 64])
@pytest.mark.parametrize("comm", [0.0, 2.0])
def test_the_optimum_is_global(ratio: float, micro_batches: int, comm: float) -> None:
    arguments = (1.0, ratio, micro_batches, 200, comm)
    best = optimal_threshold(*arguments)
    last = 1.2 * expected_step_time(*arguments[:4])
    grid = effective_speedup(np.linspace(micro_batches / 2, last, 20_001), *arguments)
    assert effective_speedup(best, *arguments) >= np.max(grid) - 1e-9
    assert best == math.inf or effective_speedup(best, *arguments) > 1


def test_peaks_of_which_a_local_search_finds_the_wrong_one() -> None:
    arguments = (1.0, 0.02, 12, 5000)
    best = optimal_threshold(*arguments)
    between, before = effective_speedup(np.array([11.6, 11.13]), *arguments)  # type: ignore[misc]
    assert before > between, "there is a peak before the 12th micro-batch"
    assert 12 < best < 12.3
    assert effective_speedup(best, *arguments) > before


def test_where_nothing_varies_nothing_is_dropped() -> None:
    assert optimal_threshold(1.0, 0.0, 12, 8) == math.inf
    assert optimal_threshold(1.0, 0.01, 12, 2, comm_time=5.0) == math.inf


# ---- a threshold from measured times -------------------------------------------------------------


def by_loops(
    times: Floats, comm: Floats, thresholds: list[float], preempt: bool = True
) -> list[tuple[float, float]]:
    """Speed-up and drop rate of each threshold: Algorithm 2 as it is printed, or as workers do."""
    steps, workers, count = times.shape
    found = []
    for tau in thresholds:
        speedup = dropped = 0.0
        for i in range(steps):
            slowest, finished, last = 0.0, 0.0, 0.0
            for n in range(workers):
                end = 0.0
                for m in range(count):
                    begun = end < tau
                    end += times[i, n, m]
                    finished += (1 / workers) if (end < tau if preempt else begun) else 0.0
                    last = max(last, end if begun else 0.0)
                slowest = max(slowest, end)
            ratio = (slowest + comm[i]) / ((min(tau, slowest) if preempt else last) + comm[i])
            speedup += ratio * finished / count / steps
            dropped += (1 - finished / count) / steps
        found.append((speedup, dropped))
    return found


@pytest.mark.parametrize("preempt", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_algorithm_2_is_that_of_plain_loops(seed: int, preempt: bool) -> None:
    rng = np.random.default_rng(seed)
    steps, workers, count = rng.integers(1, 5, 3)
    times = delays(1.0, (steps, workers, count), rng) + 0.2
    if seed % 2:
        times = np.ceil(2 * times)  # many are equal
    comm = rng.choice([0.0, 0.5, 3.0], steps)
    ends = {float(end) for row in times.reshape(-1, count) for end in np.cumsum(row)}
    thresholds = [*sorted(np.nextafter(end, math.inf) for end in ends), math.inf]
    expected = by_loops(times, comm, thresholds, preempt)
    choice = choose_threshold(times, comm, preempt=preempt)
    assert choice.thresholds.tolist() == thresholds
    assert choice.speedups == pytest.approx([speedup for speedup, _ in expected])
    assert choice.drop_rates == pytest.approx([dropped for _, dropped in expected])
    best = max(speedup for speedup, _ in expected)
    place = max(i for i, (speedup, _) in enumerate(expected) if speedup > best - 1e-9)
    assert choice.threshold == thresholds[place]
    assert (choice.speedup, choice.drop_rate) == pytest.approx(expected[place])
    own = rng.permutation(thresholds)[:3]
    chosen = choose_threshold(times.tolist(), comm.tolist(), own, preempt=preempt)
    assert chosen.thresholds.tolist() == own.tolist()
    expected = by_loops(times, comm, own, preempt)
    assert chosen.speedups == pytest.approx([speedup for speedup, _ in expected])
    assert chosen.threshold in own


def test_finished_means_strictly_before_the_threshold() -> None:
    """Two workers, one slow micro-batch: by hand."""
    choice = choose_threshold([[[1.0, 1.0], [1.0, 5.0]]], [0.0], [2.0, np.nextafter(2.0, 3.0)])
    assert choice.drop_rates.tolist() == [0.5, 0.25]
    assert choice.speedups == pytest.approx([6 / 2 * 0.5, 6 / 2 * 0.75])
    assert choice.threshold > 2
    assert choice.speedup == pytest.approx(2.25)


def test_between_micro_batches_what_began_is_finished() -> None:
    """By hand: a threshold after the first micro-batches waits for the one that takes 5."""
    times = [[[1.0, 1.0, 1.0], [1.5, 5.0, 1.0]]]
    choice = choose_threshold(times, [0.0], [1.0, 1.2, 1.6], preempt=False)
    assert choice.speedups == pytest.approx([7.5 / 1.5 * 2 / 6, 7.5 / 2 * 3 / 6, 7.5 / 6.5 * 4 / 6])
    assert choice.drop_rates == pytest.approx([2 / 3, 1 / 2, 1 / 3])


@pytest.mark.parametrize("preempt", [True, False])
def test_no_candidate_between_the_default_ones_is_better(preempt: bool) -> None:
    rng = np.random.default_rng(1)
    times, comm = rng.exponential(1, (3, 5, 4)), rng.exponential(1, 3)
    best = choose_threshold(times, comm, preempt=preempt)
    every = choose_threshold(times, comm, np.linspace(0.01, 30, 30_000), preempt=preempt)
    assert best.speedup >= every.speedup


def test_equal_times_drop_nothing() -> None:
    """Without communication fewer micro-batches are as fast in theory, but for rounding."""
    choice = choose_threshold(np.full((2, 3, 12), 0.1), [0.0, 0.0])
    assert (choice.threshold, choice.speedup, choice.drop_rate) == (math.inf, 1, 0)


def test_times_of_zero_are_no_threshold() -> None:
    choice = choose_threshold([[[0.0, 1.0], [1.0, 1.0]]], [0.0])
    assert choice.thresholds[0] > 1
    assert np.isfinite(choice.speedups).all()


def test_choice_agrees_with_theory() -> None:
    times = np.random.default_rng(2).normal(MU, SIGMA, (20, N, M))
    choice = choose_threshold(times, np.full(20, 0.4))
    best = optimal_threshold(MU, SIGMA, M, N, 0.4)
    assert choice.speedup == pytest.approx(effective_speedup(best, MU, SIGMA, M, N, 0.4), abs=0.01)
    assert choice.threshold == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("preempt", [True, pytest.param(False, marks=pytest.mark.long)])
def test_many_workers_take_little_time_and_memory(preempt: bool) -> None:
    times = 0.45 + delays(0.45, (10, 2048, 64), np.random.default_rng(3))
    comm = np.full(10, 0.2)
    tracemalloc.start()
    try:
        start = time.process_time()
        choice = choose_threshold(times, comm, preempt=preempt)
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert choice.speedup > 1.05
    assert seconds < 3
    assert peak < 500e6


@pytest.mark.parametrize(
    "formula",
    [
        lambda: expected_step_time(MU, SIGMA, M, N),
        lambda: expected_completed(MU, SIGMA, M, 5.0),
        lambda: optimal_threshold(MU, SIGMA, M, N),
    ],
)
def test_a_formula_without_scipy_says_what_to_do(
    formula: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scipy.special", "scipy.optimize"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs scipy \(.*\): python -m pip install scipy, or"):
        formula()


def test_choosing_needs_neither_scipy_nor_torch_nor_mpi() -> None:
    code = (
        "import sys\nfor name in ('scipy', 'torch', 'mpi4py'): sys.modules[name] = None\n"
        "from wagma.theory.dropcompute import choose_threshold\n"
        "assert choose_threshold([[[1, 1], [1, 9]]], [0]).drop_rate == 0.5"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- E[T] / E[T_i] -------------------------------------------------------------------------------

FLIP = stats.rv_discrete(values=([0, 0.45], [0.5, 0.5]))()
PRINTED = [
    *((lognormal(0.225, 0.05), 1.496), (stats.norm(0.225, 0.22), 1.302), (FLIP, 1.283)),
    *((stats.expon(scale=1 / 4.47), 1.386), (stats.gamma(1, scale=1 / 4.5), 1.39)),
    *((lognormal(0.225, 0.1), 1.933), (lognormal(0.225, 0.15), 2.394)),
    *((lognormal(0.225, 0.2), 2.773), (lognormal(0.225, 0.25), 3.043)),
    (lognormal(0.225, 0.3), 3.4),
]


@pytest.mark.parametrize(("noise", "printed"), PRINTED)
def test_ratios_of_the_paper(noise: Distribution, printed: float) -> None:
    """The tables beside Figs. 13 and 14 are drawn, for a number of workers that is not given."""
    assert slowdown_ratio(noise, 12, 770, base=0.45) == pytest.approx(printed, rel=0.025)


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))


@pytest.mark.parametrize("count", [2, 30, pytest.param(1000, marks=pytest.mark.long)])
def test_maxima_of_closed_form(count: int) -> None:
    """Exponential: H_n. Pareto of exponent b: n B(n, 1 - 1/b)."""
    assert expected_maximum(stats.expon(), 1, count) == pytest.approx(harmonic(count), rel=1e-4)
    for exponent in (2.5, 4.0):
        log = math.log(count) + gammaln(1 - 1 / exponent)
        exact = math.exp(log + gammaln(count) - gammaln(count + 1 - 1 / exponent))
        found = expected_maximum(stats.pareto(exponent), 1, count)
        assert found == pytest.approx(exact, rel=1e-4)


def test_maxima_of_sums() -> None:
    """Two normal sums: sqrt(M / pi) sigma above the mean. Two binomial ones: by their masses."""
    two = expected_maximum(stats.norm(0.1, 0.2), 9, 2, base=0.5)
    assert two == pytest.approx(9 * 0.6 + 0.2 * math.sqrt(9 / math.pi), rel=1e-4)
    below = stats.binom(5, 0.5).cdf(np.arange(6))
    exact = 5 * 0.1 + 0.45 * (1 - below**40).sum()
    assert expected_maximum(FLIP, 5, 40, base=0.1) == pytest.approx(exact, rel=1e-3)
    assert slowdown_ratio(FLIP, 5, 40, 0.1) == pytest.approx(exact / (5 * 0.325), rel=1e-3)


@pytest.mark.parametrize("noise", [lognormal(0.225, 0.3), stats.gamma(0.5), stats.norm(1, 0.3)])
def test_maxima_of_drawn_sums(noise: stats.distributions.rv_frozen) -> None:
    sums = noise.rvs((4000, 20, 6), random_state=np.random.default_rng(4)).sum(axis=2)
    slowest = sums.max(axis=1)
    error = slowest.std() / math.sqrt(len(slowest))
    assert expected_maximum(noise, 6, 20) == pytest.approx(slowest.mean(), abs=4 * error)


def test_where_noise_does_not_vary_nobody_waits() -> None:
    constant = stats.rv_discrete(values=([0.3], [1.0]))()
    assert slowdown_ratio(constant, 12, 100, 0.2) == pytest.approx(1, abs=1e-3)


# ---- delays --------------------------------------------------------------------------------------


def test_delays_are_those_of_the_paper() -> None:
    drawn = delays(2.0, (500, 400), np.random.default_rng(6)) / 2.0
    assert drawn.shape == (500, 400)
    z = np.random.default_rng(7).lognormal(4, 1, drawn.shape)
    expected = np.minimum(z / (2 * math.exp(4.5)), 5.5)
    assert stats.ks_2samp(drawn.ravel(), expected.ravel()).pvalue > 1e-3
    assert drawn.max() == 5.5
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert delays(0.0, 3, np.random.default_rng(0)).tolist() == [0, 0, 0]


# ---- bad input -----------------------------------------------------------------------------------

TIMES = np.ones((2, 3, 4))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expected_step_time(1, 1, 3, 1), "workers is 1: the formulas are undefined"),
        (lambda: effective_speedup(1, 1, 1, 3, 1), "workers is 1: the formulas are undefined"),
        (lambda: optimal_threshold(1, 1, 3, 1), "workers is 1: the formulas are undefined"),
        (lambda: slowdown_ratio(FLIP, 3, 1), "workers is 1: the formulas are undefined"),
        (lambda: expected_step_time(1, 1, 3, 0), "workers is 0: at least 1"),
        (lambda: expected_step_time(1, 1, 0, 2), "micro_batches is 0: at least 1"),
        (lambda: slowdown_ratio(FLIP, 0, 2), "micro_batches is 0: at least 1"),
        (lambda: expected_step_time(0, 1, 3, 2), "mu is 0.0: a finite number, more than 0"),
        (lambda: expected_step_time(math.nan, 1, 3, 2), "mu is nan"),
        (lambda: expected_completed(1, -1, 3, 2), "sigma is -1.0: a finite number, at least 0"),
        (lambda: expected_completed(1, 1, 3, 0), "threshold has 0.0: more than 0 is needed"),
        (lambda: expected_completed(1, 1, 3, [1, math.nan]), "threshold has nan"),
        (lambda: effective_speedup(-2, 1, 1, 3, 2), "threshold has -2.0"),
        (lambda: effective_speedup(1, 1, 1, 3, 2, -1), "comm_time is -1.0"),
        (lambda: effective_speedup(1, 1, 1, 3, 2, step_time=0), "step_time is 0.0"),
        (lambda: optimal_threshold(1, 1, 3, 2, math.inf), "comm_time is inf"),
        (lambda: slowdown_ratio(FLIP, 3, 2, -1), "base is -1.0"),
        (lambda: slowdown_ratio(stats.norm(-1), 3, 2), "the mean of a term is -1.0"),
        (lambda: slowdown_ratio(stats.pareto(1), 3, 2), "the mean of a term is inf"),
        (lambda: slowdown_ratio(stats.pareto(1.1), 3, 2), "too heavy a tail"),
        (lambda: delays(-1, 3, np.random.default_rng()), "mean is -1.0"),
        (lambda: choose_threshold([1, 2], [1]), r"times has the shape \(2,\): \(steps, workers"),
        (lambda: choose_threshold(np.ones((2, 0, 3)), [1, 1]), r"times has the shape \(2, 0, 3\)"),
        (lambda: choose_threshold(TIMES, [1]), r"comm_times has the shape \(1,\): \(2,\) is"),
        (lambda: choose_threshold(-TIMES, [1, 1]), r"times\[0, 0, 0\] is -1.0: a finite number"),
        (lambda: choose_threshold(TIMES, [1, math.nan]), r"comm_times\[1\] is nan"),
        (lambda: choose_threshold(TIMES * math.inf, [1, 1]), r"times\[0, 0, 0\] is inf"),
        (lambda: choose_threshold(0 * TIMES, [1, 0]), "of step 1 are all 0"),
        (lambda: choose_threshold(TIMES, [1, 1], []), r"candidates has the shape \(0,\)"),
        (lambda: choose_threshold(TIMES, [1, 1], 3.0), r"candidates has the shape \(\)"),
        (lambda: choose_threshold(TIMES, [1, 1], [2, 0]), "candidates has 0.0: more than 0"),
    ],
)
def test_wrong_values_are_named(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]


def test_wrong_types_are_named() -> None:
    for call, words in (
        (lambda: expected_step_time("x", 1, 3, 2), "mu is 'x': a number is needed"),  # type: ignore[arg-type]
        (lambda: expected_step_time(1, 1, 2.5, 2), "micro_batches is 2.5: an integer"),  # type: ignore[arg-type]
        (lambda: choose_threshold([["x"]], [1]), "times is .*: numbers are needed"),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError, match=words):
            call()


def test_a_choice_is_immutable() -> None:
    choice = choose_threshold(TIMES, [1, 1])
    assert isinstance(choice, ThresholdChoice)
    with pytest.raises(AttributeError):
        choice.threshold = 1.0  # type: ignore[misc]
