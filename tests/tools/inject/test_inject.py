"""Delays that are drawn: the same everywhere, of the distributions that are promised."""

import math
import pickle
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wagma import inject
from wagma.inject import Injector, parse
from wagma.theory import dropcompute

LIVENESS_S = 60.0
STEPS = 40_000
GOLDEN_RANKS = [[0, 2], [3, 4], [3, 4], [2, 3], [0, 2], [1, 5]]  # steps 0 to 5
GOLDEN_DELAYS = [0.3800431998396291, 0.3559450820966939, 1.519327700550924, 0.3824911992857519]
SPECS = (
    "none",
    "paper",
    "paper:1:0.1",
    "one-server:3:0.3",
    "one-server:3:0.3:7",
    "heterogeneous:0.01",
    "heterogeneous:0.01:1:0:2.5:4",
    "exponential:0.05",
    "exponential:0.05:1:1:1:2",
    "lognormal:0.45",
    "lognormal:0.45:0.5:0.829:inf",
    "dropcompute:0.45",
    "normal:0.05:0.0015",
    "paper:1:0.3, paper:1:0.1, exponential:0.002",
    "lognormal:0.05,stop:1:20:2.5,kill:3:50",
)


@pytest.mark.parametrize("spec", SPECS)
def test_a_draw_depends_on_the_step_alone(spec: str) -> None:
    """Not on what was drawn before, nor on how much is asked for at once."""
    imbalance = parse(spec, 4, seed=7)
    for first in (0, 5, 2**40):
        table = imbalance.table(30, first)
        assert table.shape == (30, 4)
        assert table.dtype == np.float64
        assert (table >= 0).all()
        for row in reversed(range(30)):
            assert np.array_equal(imbalance.delays(first + row), table[row])
        assert imbalance.delay(3, first + 2) == table[2, 3]
        assert np.array_equal(parse(spec, 4, seed=7).table(29, first + 1), table[1:])
    assert imbalance.table(0).shape == (0, 4)


@pytest.mark.parametrize("spec", SPECS)
def test_text_repr_and_pickle_give_the_same(spec: str) -> None:
    imbalance = parse(spec, 4, seed=7)
    for other in (
        parse(str(imbalance), 4, seed=7),
        eval(repr(imbalance), {**vars(inject), "inf": math.inf}),
        pickle.loads(pickle.dumps(imbalance)),
    ):
        assert other == imbalance
        assert np.array_equal(other.table(10), imbalance.table(10))


DRAWS = """
import sys, hashlib, numpy as np
from wagma import inject
rank = int(sys.argv[1])
imbalance = inject.parse(sys.argv[2], 5, seed=3)
steps = np.random.default_rng(rank).permutation(200)  # every process in an order of its own
rows = np.empty((200, 5))
for step in steps:
    rows[step] = [imbalance.delay(other, step) for other in range(5)]
print(hashlib.sha256(rows.tobytes()).hexdigest())
"""


@pytest.mark.long
def test_every_process_draws_the_same() -> None:
    spec = "paper,lognormal:0.1,exponential:0.2,normal:0.3:0.1"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DRAWS, str(rank), spec], stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    digests = {process.communicate(timeout=LIVENESS_S)[0] for process in processes}
    assert len(digests) == 1
    assert len(digests.pop()) == 65


def test_draws_stay_what_they_were() -> None:
    """Runs of different releases can be compared: the numbers are the algorithm's."""
    drawn = [np.flatnonzero(row).tolist() for row in parse("paper", 8, seed=1).table(6)]
    assert drawn == GOLDEN_RANKS
    delays = parse("exponential:1", 2, seed=(1 << 40) + 1).table(2).ravel()
    assert delays.tolist() == pytest.approx(GOLDEN_DELAYS, rel=1e-12)


def test_seeds_and_events_draw_their_own() -> None:
    tables = [parse("exponential:1", 4, seed).table(50) for seed in (0, 1, 2)]
    two = parse("exponential:1,exponential:1", 4, 1)
    tables.append(two.table(50) - tables[1])
    for a in range(4):
        for b in range(a):
            assert not np.isclose(tables[a], tables[b]).any()


def test_paper() -> None:
    table = parse("paper:2:0.3", 5, seed=1).table(STEPS)
    assert set(np.unique(table)) == {0, 0.3}
    assert (np.count_nonzero(table, axis=1) == 2).all()
    drawn = table > 0
    deviation = math.sqrt(STEPS * 0.4 * 0.6)
    assert np.abs(drawn.sum(axis=0) - 0.4 * STEPS).max() < 5 * deviation
    pairs = [(drawn[:, a] & drawn[:, b]).sum() for a in range(5) for b in range(a)]
    assert np.abs(np.array(pairs) - STEPS / 10).max() < 5 * math.sqrt(STEPS * 0.1 * 0.9)
    again = (drawn[1:] & drawn[:-1]).sum() / (STEPS - 1)  # of 2, 2 * 2 / 5 are drawn again
    assert again == pytest.approx(0.8, abs=5 * 0.6 / math.sqrt(STEPS))
    assert not parse("paper:0:1", 3).table(9).any()
    assert parse("paper:3:1", 3).table(9).all()


def test_the_default_is_the_papers() -> None:
    assert inject.Paper(64) == inject.Paper(64, delayed_ranks=2, seconds=0.32, seed=0)


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))


def test_exponential() -> None:
    """Order statistics are those of K-sync: E[X_{K:P}] = (H_P - H_{P-K}) / mu."""
    table = np.sort(parse("exponential:0.5", 8, seed=2).table(STEPS), axis=1)
    for k in range(1, 9):
        expected = 0.5 * (harmonic(8) - harmonic(8 - k))
        assert table[:, k - 1].mean() == pytest.approx(expected, rel=0.03)
    means = parse("exponential:0.5:1:2:0", 3, seed=2).table(STEPS).mean(axis=0)
    assert means == pytest.approx([0.5, 1, 0], rel=0.03)


def test_lognormal_is_dropcomputes() -> None:
    """min(Z / (2 exp(4.5)), 5.5) with Z of LogNormal(4, 1)."""
    table = parse("lognormal:2", 4, seed=3).table(STEPS)
    scaled = np.sort((table / 2).ravel())
    normal = statistics.NormalDist()
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        expected = math.exp(4 + normal.inv_cdf(share)) / (2 * math.exp(4.5))
        assert scaled[int(share * scaled.size)] == pytest.approx(expected, rel=0.03)
    assert scaled[-1] == pytest.approx(5.5)
    assert (scaled == scaled[-1]).mean() == pytest.approx(
        1 - normal.cdf(math.log(5.5 * 2 * math.exp(4.5)) - 4), rel=0.25
    )
    uncut = parse("lognormal:1:0.225:0.829:inf", 4, seed=3).table(STEPS)
    assert uncut.mean() == pytest.approx(0.225, rel=0.03)
    assert uncut.var() == pytest.approx(0.05, rel=0.15)


def test_dropcompute_is_that_of_the_theory() -> None:
    """One distribution, drawn by step here and by a generator there."""
    table = parse("dropcompute:0.45", 4, seed=3).table(STEPS)
    assert np.array_equal(table, parse("lognormal:0.45", 4, seed=3).table(STEPS))
    drawn = dropcompute.delays(0.45, table.shape, np.random.default_rng(1))
    shares = np.linspace(0.01, 0.99, 99)
    assert np.quantile(table, shares) == pytest.approx(np.quantile(drawn, shares), rel=0.04)
    assert table.max() == drawn.max() == 0.45 * 5.5


def test_normal() -> None:
    table = parse("normal:0.05:0.002", 4, seed=4).table(STEPS)
    assert table.mean() == pytest.approx(0.05, rel=0.001)
    assert table.std() == pytest.approx(0.002, rel=0.03)
    halves = parse("normal:0:1", 4, seed=4).table(STEPS)
    assert (halves == 0).mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("spec", ["exponential:1", "lognormal:1", "dropcompute:1", "normal:4:1"])
def test_ranks_and_steps_are_independent(spec: str) -> None:
    table = parse(spec, 6, seed=5).table(STEPS)
    pairs = np.corrcoef(np.hstack([table[1:], table[:-1]]).T)
    assert np.abs(pairs - np.eye(12)).max() < 5 / math.sqrt(STEPS)


def test_constant_delays() -> None:
    assert parse("one-server:1:0.3:3", 2).table(5, 2).tolist() == [
        [0, 0], [0, 0.3], [0, 0], [0, 0], [0, 0.3],
    ]  # fmt: skip
    assert parse("one-server:0:0.3", 1).table(2, 9).tolist() == [[0.3], [0.3]]
    assert parse("heterogeneous:0.1", 4).delays(3) == pytest.approx([0.1, 0.4 / 3, 0.2, 0.4])
    assert parse("heterogeneous:0.1:3:0", 2).delays(3) == pytest.approx([0.3, 0])
    assert inject.Heterogeneous(2, 0.1, [3, 0]) == inject.Heterogeneous(2, 0.1, (3.0, 0.0))


def test_times_may_have_a_unit() -> None:
    """Those that are times alone: MEAN, SIGMA and CAP of "lognormal" and factors are none."""
    given = "paper:2:320ms,one-server:1:0.3s,dropcompute:450ms,normal:4s:50ms,stop:1:20:2.5s"
    seconds = "paper:2:0.32,one-server:1:0.3,dropcompute:0.45,normal:4:0.05,stop:1:20:2.5"
    assert parse(given, 4) == parse(seconds, 4)
    for wrong in ("lognormal:1:2s", "heterogeneous:1:2s", "paper:2ms"):
        with pytest.raises(ValueError, match="is needed"):
            parse(wrong, 1)


def test_delays_add_up() -> None:
    imbalance = parse("one-server:0:0.5,heterogeneous:1:1:2,kill:1:0", 2)
    assert imbalance.delays(4).tolist() == [1.5, 2]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "unknown imbalance '': choose from none, paper, one-server, heterogeneous"),
        ("papr:2", "unknown imbalance 'papr'"),
        ("paper,none", "unknown imbalance 'none'"),
        ("paper:two", "paper:two: delayed_ranks is 'two': an integer is needed"),
        ("paper:5", "paper:5: delayed_ranks is 5: at most 4 is possible"),
        ("paper:-1", "delayed_ranks is -1: at least 0"),
        ("paper:2:-0.1", "seconds is -0.1: at least 0"),
        ("paper:2:nan", "seconds is nan"),
        ("paper:2:3m", "seconds is '3m': a time such as 300ms, or a number of seconds, is needed"),
        ("paper:2:inf", "seconds is inf: at most 1e+06 is possible"),
        ("paper:2:0.3:1", "'1' is too much: paper[:DELAYED_RANKS[:SECONDS]]"),
        ("one-server", "rank is missing: one-server:RANK:SECONDS[:PERIOD]"),
        ("one-server:4:1", "rank is 4: the 4 ranks are 0 to 3"),
        ("one-server:0:1:0", "period is 0: at least 1"),
        ("heterogeneous:1:2:3", "2 factors for 4 ranks"),
        ("exponential:1:1:1:1:x", "factors is '1:1:1:x': a number is needed"),
        ("exponential:1e7", "seconds is 10000000.0: at most 1e+06"),
        ("lognormal:1:1:1:1e7", "cap is 10000000.0: at most 1e+06"),
        ("lognormal:1:0", "mean is 0.0: more than 0"),
        ("dropcompute", "mean is missing: dropcompute:MEAN"),
        ("dropcompute:-1", "dropcompute:-1: mean is -1.0: at least 0"),
        ("dropcompute:1:2", "'2' is too much: dropcompute:MEAN"),
        ("normal:1", "deviation is missing"),
        ("trace", "path is missing: trace:PATH[:END]"),
        ("trace:x:never", "end is 'never': one of cycle, once"),
        ("stop:1:2", "seconds is missing: stop:RANK:STEP:SECONDS"),
        ("stop:1:2:-1", "stop:1:2:-1: seconds is -1.0"),
        ("kill:4:1", "kill:4:1: rank is 4: the 4 ranks are 0 to 3"),
        ("kill:1:-1", "step is -1: at least 0"),
    ],
)
def test_wrong_texts_are_named(spec: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(spec, 4)
    assert words in str(caught.value)


def test_wrong_arguments_are_named() -> None:
    imbalance = parse("paper", 4)
    for call, words in (
        (lambda: parse("none", 0), "size is 0: at least 1"),
        (lambda: parse("none", 4, -1), "seed is -1: at least 0"),
        (lambda: imbalance.delay(4, 0), "rank is 4: the 4 ranks are 0 to 3"),
        (lambda: imbalance.delay(-1, 0), "rank is -1: the 4 ranks are 0 to 3"),
        (lambda: imbalance.delays(-1), "step is -1: at least 0"),
        (lambda: imbalance.inject(0, -1), "step is -1: at least 0"),
        (lambda: imbalance.table(-1), "steps is -1: at least 0"),
        (lambda: Injector(3, imbalance.events), "is for 4 ranks, not for 3"),
        (lambda: Injector(3, (inject.Kill(3, 0),)), "rank is 3: the 3 ranks are 0 to 2"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    for call in (lambda: imbalance.delays(0.5), lambda: inject.Paper(4, 2, "x")):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="is needed"):
            call()


@pytest.mark.parametrize(
    ("spec", "phrase"),
    [
        ("none", "none of them delayed"),
        ("paper", "2 of them delayed by 320 ms at every step"),
        ("one-server:1:0.3", "rank 1 delayed by 300 ms at every step"),
        ("one-server:1:0.3:50", "rank 1 delayed by 300 ms once in 50 steps"),
        ("heterogeneous:0.01", "each with its delay, 10 to 40 ms, at every step"),
        ("lognormal:0.1", "each delayed by about 50 ms on average (lognormal) at every step"),
        ("dropcompute:0.1", "each delayed by about 50 ms on average (DropCompute's) at every "
         "micro-batch"),
        ("normal:0.1:0.01,kill:0:3", "each delayed by 100 ms +- 10 ms at every step, "
         "rank 0 killed at step 3"),
    ],
)  # fmt: skip
def test_an_imbalance_describes_itself(spec: str, phrase: str) -> None:
    assert parse(spec, 4).describe() == phrase


def test_forms() -> None:
    """They say how many values are needed, and how many are possible."""
    assert inject.forms() == [
        "paper[:DELAYED_RANKS[:SECONDS]]",
        "one-server:RANK:SECONDS[:PERIOD]",
        "heterogeneous:SECONDS[:FACTORS...]",
        "exponential:SECONDS[:FACTORS...]",
        "lognormal:SECONDS[:MEAN[:SIGMA[:CAP]]]",
        "dropcompute:MEAN",
        "normal:SECONDS:DEVIATION",
        "trace:PATH[:END]",
        "stop:RANK:STEP:SECONDS",
        "kill:RANK:STEP",
    ]


def test_the_package_imports_it_when_it_is_used(tmp_path: Path) -> None:
    code = (
        "import sys, wagma; assert 'numpy' not in sys.modules; "
        "assert wagma.inject.parse('none', 1).delay(0, 0) == 0; assert 'torch' not in sys.modules; "
        "assert 'inject' in dir(wagma)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=LIVENESS_S)
