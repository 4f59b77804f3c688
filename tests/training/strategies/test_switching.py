"""When a training leaves AllreduceSGD and when it returns: choices from given times."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from wagma.training.strategies.switching import (
    LEAST_STEPS,
    LONGEST,
    Choice,
    MeasuredSteps,
    ReviewPace,
    choose,
    group_sizes,
    most_gained,
)

STEPS, SIZE = 60, 4


def measured(slow: float, *, waits: bool, factor: float = 1.0) -> MeasuredSteps:
    """Steps of a second in which one rank after the other takes `slow` seconds."""
    compute = np.ones((SIZE, STEPS))
    compute[np.arange(STEPS) % SIZE, np.arange(STEPS)] = slow
    seconds = compute.max(axis=0).mean() if waits else compute.mean()
    return MeasuredSteps(factor * compute, 0.01, factor * float(seconds) + 0.01, 1 << 20)


def test_it_leaves_for_what_gains_enough() -> None:
    chosen = choose(Choice(), measured(3, waits=True), 10, 0.1)
    assert chosen.group_size in group_sizes(SIZE)
    # All ranks compute 1.5 s on average, and the synchronous ones wait for 3 s.
    assert 0.5 < chosen.gain < 1.0
    assert chosen.seconds == pytest.approx(3.01 / 1.5)
    assert choose(Choice(), measured(3, waits=True), 10, 1.1).group_size is None
    assert choose(Choice(), measured(1.05, waits=True), 10, 0.1).group_size is None


def test_it_returns_when_no_rank_is_slow_any_more() -> None:
    averaging = choose(Choice(), measured(3, waits=True), 10, 0.1)
    kept = choose(averaging, measured(3, waits=False), 10, 0.1)
    assert kept.group_size == averaging.group_size
    assert kept.gain == pytest.approx(1, abs=0.05)
    assert choose(averaging, measured(1, waits=False), 10, 0.1).group_size is None
    # Twice as much work is no reason.
    assert choose(averaging, measured(3, waits=False, factor=2), 10, 0.1).group_size is not None


def test_it_returns_when_the_prediction_was_wrong() -> None:
    averaging = choose(Choice(), measured(3, waits=True), 10, 0.1)
    slower = MeasuredSteps(measured(3, waits=False).compute, 0.01, 3.2, 1 << 20)
    assert choose(averaging, slower, 10, 0.1).group_size is None
    # Hysteresis: 5% are too little for a switch, and enough to stay.
    some = MeasuredSteps(slower.compute, 0.01, 3.01 / 1.05, 1 << 20)
    assert choose(averaging, some, 10, 0.1).group_size == averaging.group_size


def test_it_compares_the_steps_that_all_ranks_measured() -> None:
    rows = [[(v, 1000 * (rank + 1), 50, 7) for v in range(rank, 20 + rank)] for rank in range(3)]
    found = MeasuredSteps.common(rows, 8)
    assert found is not None
    assert found.compute.shape == (3, 18)
    assert np.allclose(found.compute[:, 0], [1e-3, 2e-3, 3e-3])
    assert found.communication == pytest.approx(7e-6)
    assert found.seconds == pytest.approx(2e-3 + 57e-6)
    assert MeasuredSteps.common([row[: LEAST_STEPS + 1] for row in rows], 8) is None


@pytest.mark.parametrize("seed", range(4))
def test_no_prediction_exceeds_what_can_be_gained(seed: int) -> None:
    """Times that are drawn: what is simulated is below the bound from the ranks' sums."""
    random = np.random.default_rng(seed)
    compute = random.exponential(1.0, (SIZE, STEPS)) * random.random((SIZE, 1))
    wait = compute.max(axis=0) - compute
    drawn = MeasuredSteps(compute, 0.3, float(compute.max(axis=0).mean()) + 0.3, 1 << 20)
    parts = [np.rint(1e6 * part).astype(int) for part in (compute, wait, np.full_like(wait, 0.3))]
    rows = [[*zip(range(STEPS), *each, strict=True)] for each in zip(*parts, strict=True)]
    most = most_gained(rows)
    assert most == pytest.approx((compute.max(axis=0).sum() + 18) / compute.sum(1).max() - 1, 1e-4)
    assert most is not None and 0 < choose(Choice(), drawn, 10, 1e-3).gain < most
    assert most_gained([*rows, rows[0][: LEAST_STEPS - 1]]) is None


def test_simulations_are_rare_while_nothing_changes() -> None:
    pace = ReviewPace(64)
    made = [v for v in range(64, 64 * 200, 64) if pace.simulates(v, 0.2, 0.1)]
    pauses = [after - before for before, after in pairwise(made)]
    assert made[0] == 64
    assert pauses[:5] == [128, 256, 512, 1024, 1024]
    assert set(pauses[3:]) == {64 * LONGEST}
    now = 64 * 201
    assert not pace.simulates(now, 0.22, 0.1)
    # A simulation comes at once when more could be gained, and the next one soon after it.
    assert pace.simulates(now, 0.24, 0.1)
    assert [pace.simulates(now + more, 0.24, 0.1) for more in (64, 128)] == [False, True]
    assert not pace.simulates(10**6, 0.09, 0.1)  # nothing to gain


def test_one_rank_never_leaves() -> None:
    assert group_sizes(1) == []
    assert group_sizes(2) == [2]


def test_algorithms_are_imported_without_simulations() -> None:
    code = "import sys, wagma.algorithms; sys.exit('wagma.simulate' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
