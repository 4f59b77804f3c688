"""The benchmarks' statistics, against what was worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from bench_reports import MPI, OWN, SLOWER, SLOWEST, point, series

from wagma.benchmarks import figures
from wagma.benchmarks.settings import Settings

LATE = [[True, False], [False, False], [False, False], [False, False]]


def test_osu_averages_the_ranks_averages() -> None:
    found = figures.osu(series())
    assert (found.mean, found.smallest, found.largest) == (3.5, 2.5, 4.5)


def test_own_latency_is_that_of_the_slowest_rank() -> None:
    own = figures.figures(series()).own  # of 3, 4, 5 and 6 us
    assert own.mean == own.p50 == 4.5
    assert (own.p10, own.p90, own.p99) == (
        pytest.approx(3.3),
        pytest.approx(5.7),
        pytest.approx(5.97),
    )
    assert figures.headline(series()) == 4.5
    assert figures.percentile(series(), 100) == 6.0


def test_the_slowest_rank_may_be_another_in_each_iteration() -> None:
    swapped = [[3000, 1000], *OWN[1:]]
    assert figures.headline(series(own=swapped)) == 4.5
    assert figures.osu(series(own=swapped)).largest == 4.0


def test_latency_from_the_last_arrival() -> None:
    """Rank 1 comes 2.5 us after rank 0, which in two iterations had left before."""
    one = series(own=OWN, began=[[0, 2500]])
    found = figures.figures(one)
    assert found.from_last_by_rank == (0.0, 4.5)  # rank 0: -1.5, -0.5, 0.5, 1.5
    assert found.from_last.p50 == 4.5
    assert found.own.p50 == 4.5
    assert found.arrivals == 2.5
    assert found.exits == 4.5
    nobody_waited = figures.figures(series(own=[[1000, 1000]], began=[[0, 2500]]))
    assert nobody_waited.from_last_by_rank == (-1.5, 1.0)
    blocked = figures.figures(series(own=[[3500, 1000]], began=[[0, 2500]]))
    assert (blocked.own.p50, blocked.from_last.p50) == (3.5, 1.0)
    assert (
        figures.percentile(series(own=[[3500, 1000]], began=[[0, 2500]]), 50, from_last=True) == 1
    )


def test_all_left_before_the_last_came() -> None:
    """Nothing is clipped at 0, of which the schema knows."""
    found = figures.figures(series(own=[[1000, -500]], began=[[0, 2500]]))
    assert found.from_last.p50 == -0.5


def test_per_rank() -> None:
    found = figures.figures(series(late=LATE))
    assert found.own_by_rank == (2.5, 4.5)
    assert found.late_percent_by_rank == (25.0, 0.0)
    assert found.late_percent == 12.5


def test_skew_is_the_latencies_difference_in_percent_of_their_mean() -> None:
    # 2 us of means 2, 3, 4 and 5 us
    assert figures.figures(series()).skew_percent == pytest.approx((200 / 3 + 50) / 2)
    assert figures.figures(series(own=[[0, 0]])).skew_percent == 0.0


@pytest.mark.parametrize(
    ("percent", "place"), [(0, 1), (1, 1), (50, 50), (90, 90), (99, 99), (99.9, 99), (100, 100)]
)
def test_osu_s_percentiles_are_samples(percent: float, place: int) -> None:
    shuffled = np.random.default_rng(1).permutation(100) + 1
    one = series(own=1000 * np.stack([shuffled - 0.5, shuffled + 0.5], axis=1))
    assert figures.osu_percentile(one, percent) == place


def test_osu_s_percentiles_of_few_samples() -> None:
    four = series()  # 2, 3, 4 and 5 us
    assert [figures.osu_percentile(four, p) for p in (0, 25, 50, 74, 75, 99, 100)] == [
        *(2.0, 2.0, 3.0, 3.0),
        *(4.0, 4.0, 5.0),
    ]


# ---- non-blocking --------------------------------------------------------------------------------


def test_overlap_is_osu_s() -> None:
    one = series(
        own=[[10_000, 12_000]],
        posting=[[1000, 1000]],
        computing=[[8000, 8000]],
        waiting=[[1000, 3000]],
        testing=[[500, 500]],
        pure=[[4000, 8000]],
    )
    found = figures.nonblocking(one)
    assert (found.overall, found.compute, found.posting) == (11.0, 8.0, 1.0)
    assert (found.testing, found.waiting) == (0.5, 1.5)
    assert (found.pure.mean, found.pure.smallest, found.pure.largest) == (6.0, 4.0, 8.0)
    assert found.overlap_percent == pytest.approx(50.0)  # 3 of 6 us are not hidden


@pytest.mark.parametrize(("overall", "percent"), [(8000, 100.0), (14_000, 0.0), (30_000, 0.0)])
def test_overlap_is_never_negative(overall: int, percent: float) -> None:
    one = series(own=[[overall]], computing=[[8000]], pure=[[6000]])
    assert figures.nonblocking(one).overlap_percent == percent


def test_overlap_of_nothing() -> None:
    assert figures.nonblocking(series(own=[[0]], pure=[[0]])).overlap_percent == 0.0


def test_what_punctual_ranks_pay() -> None:
    one = series(
        own=[[9000, 20_000], [30_000, 8000]],
        computing=[[5000, 5000], [5000, 5000]],
        delayed=[[False, True], [True, False]],
    )
    assert figures.punctual(one, 0) == 3.0
    assert figures.punctual(one, 100) == 4.0
    assert figures.punctual(series(), 50) == 4.5  # nobody is delayed


# ---- bandwidth, ratios ---------------------------------------------------------------------------


def test_bandwidths_are_nccl_tests_s() -> None:
    assert figures.algbw(1_000_000, 100.0) == pytest.approx(10.0)
    assert figures.busbw(1_000_000, 100.0, 4) == pytest.approx(15.0)  # 2 (4 - 1) / 4
    assert figures.busbw(1_000_000, 100.0, 1) == 0.0
    assert figures.algbw(8, 0.0) == 0.0


def test_groups_have_the_bandwidth_of_their_members() -> None:
    four = series(own=[[1, 1, 1, 1]])
    group = Settings("group-allreduce", (8,), group_size=2)
    assert figures.reducing(group, four) == 2
    assert figures.reducing(Settings("allreduce", (8,)), four) == 4
    other = series("MPI_Allreduce in-place", [[1, 1, 1, 1]])
    assert figures.reducing(group, other) == 4
    part = series("MPI_Allreduce of 2 ranks in-place", [[1, 1, 1, 1]])
    assert figures.reducing(group, part) == 2


def test_a_baseline_is_its_fastest_series() -> None:
    fast = series("MPI_Allreduce two-buffers", SLOWER)
    found = point(
        series(),
        series("MPI_Allreduce of 1 ranks in-place", OWN),
        series("MPI_Allreduce in-place", SLOWEST),
        fast,
        series("MPI_Iallreduce in-place", SLOWEST),
        series("gloo", SLOWEST),
    )
    assert figures.baseline(found, "mpi") is fast
    assert figures.baseline(found, "mpi-nonblocking") is found.series[4]
    assert figures.baseline(found, "gloo") is found.series[5]
    assert figures.baseline(found, "nccl") is None
    assert figures.wagma(found) is found.series[0]


def test_ratios_are_of_medians_of_the_slowest() -> None:
    assert figures.ratio(series(), series("gloo", SLOWER)) == 2.0
    assert figures.ratio(series(own=[[0, 0]]), series("gloo", SLOWER)) == 0.0


def test_calls_from_c_and_from_python_have_no_ratio() -> None:
    slow = replace(series("gloo", SLOWER), loop="python")
    assert figures.ratio(series(), slow) is None
    assert figures.ratio(replace(series(), loop="python"), slow) == 2.0


def test_groups_are_compared_with_mpi_s_sums_of_groups() -> None:
    groups = series("MPI_Allreduce of groups of 2 in-place", SLOWER)
    everybody = series(*MPI)
    found = point(series(), everybody, groups)
    assert figures.baseline(found, figures.OF_GROUPS) is groups
    assert figures.baseline(found, "mpi") is everybody
    # Not measured where a group is everybody.
    assert figures.baseline(point(series(), everybody), figures.OF_GROUPS) is everybody
