"""The table of docs/results.md: its arithmetic and its plan."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wagma.benchmarks import raw
from wagma.benchmarks.samples import Checks, Point, Series
from wagma.benchmarks.scenarios.plan import Fastest, draws
from wagma.benchmarks.table import plan, ratio_rows, report, row
from wagma.memory import Room
from wagma.theory.order_statistics import exponential_mean
from wagma.theory.replay import replay

ENOUGH = Room(shared=1 << 40, total=1 << 40)


# ---- arithmetic ----------------------------------------------------------------------------------


def of(began: Any, ended: Any, **more: Any) -> Series:
    """A series of wagma; times in ns, [iterations][ranks]."""
    began, ended = np.array(began, np.int64), np.array(ended, np.int64)
    late = np.zeros(began.shape, np.bool_)
    return Series("wagma", "wagma", "python", began, ended, **({"late": late} | more))


def test_a_time_is_that_of_the_slowest_rank() -> None:
    series = of([[0, 2], [5, 0], [7, 7]], [[1, 5], [10, 4], [9, 9]])
    assert row.summary(series).median == pytest.approx(3e-9)  # of 3, 5, 2
    assert row.late_ranks(series) is None
    delayed = np.array([[False, True], [True, False], [False, False]])
    series = replace(series, delayed=delayed)
    assert row.summary(series).median == pytest.approx(2e-9)  # of 1, 4, 2
    late = row.late_ranks(series)
    assert late is not None
    assert late.median == pytest.approx(4e-9)  # of 3, 5


def test_summaries_are_in_seconds() -> None:
    times = np.arange(1_000, 102_000, 1_000)[:, None]
    summary = row.summary(of(np.zeros_like(times), times))
    assert summary.median == pytest.approx(51e-6)
    assert summary.p10 == pytest.approx(11e-6)
    assert summary.p90 == pytest.approx(91e-6)
    assert summary.samples == 101


def test_what_a_report_keeps_comes_back() -> None:
    late = np.array([[True, False]])
    series = of(
        [[1_000_007, 1_000_009]], [[1_000_020, 1_000_030]], late=late, checks=Checks(2, 1, "x")
    )
    point = Point(8, 2, "together", None, (series, replace(series, name="posted", pure=late + 5)))
    kept = json.loads(json.dumps(raw.to_json(point)))
    assert kept["bytes"] == 8
    assert kept["series"]["wagma"]["began"] == [[0, 2]]
    assert kept["series"]["wagma"]["wrong"] == 1
    found = raw.from_json(kept)
    assert list(found) == ["wagma", "posted"]
    one = found["wagma"]
    assert (one.ended - one.began).tolist() == [[13, 21]]
    assert (one.library, one.loop, one.checks) == ("wagma", "python", series.checks)
    assert one.late.tolist() == [[True, False]]
    assert (one.pure, one.delayed) == (None, None)
    assert found["posted"].pure is not None
    assert found["posted"].pure.tolist() == [[6, 5]]


def launched(mpi: str, wagma_s: float, late: list[bool], **mpi_s: float) -> dict[str, Any]:
    """A launch of one rank, that took so many seconds in each of its two calls."""
    times = {"wagma all": wagma_s} | {f"MPI_Allreduce {form}": s for form, s in mpi_s.items()}
    series = {
        name: {
            "library": "wagma" if name.startswith("wagma") else "mpi",
            "loop": "python",
            "began": [[0], [0]],
            "ended": [[round(1e9 * seconds)]] * 2,
            "late": [[one] for one in late],
            "results": 0,
            "wrong": 0,
            "first_wrong": None,
        }
        for name, seconds in times.items()
    }
    return {
        "mpi": mpi,
        "by_rank": [{"thread_level": "multiple"}],
        "cases": [{"bytes": 4, "loop": "python", "lateness": 0}],
        "points": [{"series": series}],
    }


def test_the_fastest_mpi_counts_and_wagma_of_its_launch() -> None:
    slow_mpi = launched("mpich", 4.0, [False, False], one=9.0, two=8.0)
    fast_mpi = launched("openmpi", 2.0, [False, True], one=7.0, two=6.0)
    compared = ratio_rows.compare([slow_mpi, fast_mpi], "wagma all", 4)
    assert compared is not None
    assert compared.ratio == pytest.approx(3.0)
    assert compared.launch == "Open MPI (THREAD_MULTIPLE)"
    assert compared.form == "MPI_Allreduce two"
    assert (compared.wagma.median, compared.mpi.median) == pytest.approx((2.0, 6.0))
    assert compared.late_share == 0.5
    assert ratio_rows.compare([slow_mpi], "wagma 1", 4) is None


@pytest.mark.parametrize(
    ("ratio", "goal", "late", "expected"),
    [
        (3.0, 3.0, 0.01, "reached"),
        (2.99, 3.0, 0.0, "missed"),
        (9.0, 3.0, 0.011, "too many late"),
        (9.0, None, 0.0, ""),
    ],
)
def test_verdicts(ratio: float, goal: float | None, late: float, expected: str) -> None:
    assert ratio_rows.verdict(ratio, goal, late, 0.01) == expected


def test_what_does_not_fit_is_left_out_with_a_reason() -> None:
    def chosen(room: Room) -> tuple[list[int], list[str]]:
        cases, left_out = plan.cases(
            ("all", "quorum1"), 4, (), (1 << 20, 16 << 20), with_mpi=True, quick=True, room=room
        )
        return [case.bytes for case in cases], left_out

    assert chosen(ENOUGH) == ([1 << 20, 16 << 20], [])
    needed = plan.required_bytes(("wagma all", "wagma 1"), with_mpi=True, size=16 << 20, ranks=4)
    assert needed.shared == 7 * 4 * (16 << 20)
    for room in (Room(needed.shared - 1, needed.total), Room(needed.shared, needed.total - 1)):
        sizes, left_out = chosen(room)
        assert sizes == [1 << 20]
        assert len(left_out) == 1
        assert "448 MiB of /dev/shm" in left_out[0]
    assert chosen(needed)[1] == []


def test_small_arrays_are_measured_from_c_and_from_python() -> None:
    cases, _ = plan.cases(
        ("small", "cost", "arrival"), 2, (4, 1024), (), with_mpi=True, quick=True, room=ENOUGH
    )
    found = {(case.bytes, case.loop, case.lateness): case for case in cases}
    assert set(found) == {
        *((size, loop, 0) for size in (4, 64, 1024) for loop in ("c", "python")),
        *((1 << 20, "python", lateness) for lateness in (1e-3, 1e-2)),
    }
    assert found[4, "c", 0].wagma == ("wagma all", "wagma 1")
    assert [found[size, "c", 0].with_mpi for size in (4, 64, 1024)] == [True, False, True]
    late = found[1 << 20, "python", 1e-2]
    assert plan.settings(late, None).arrival == "one-late:10ms"
    assert plan.settings(found[4, "c", 0], None).loop == "c"


def test_who_comes_late_does_not_count() -> None:
    def series(library: str, *own_ns: list[int]) -> dict[str, Any]:
        began = [[0, 1_000_000]] * len(own_ns)
        ended = [
            [b + ns for b, ns in zip(row, own, strict=True)]
            for row, own in zip(began, own_ns, strict=True)
        ]
        late = [[False, True]] * len(own_ns)
        return {
            "library": library,
            "loop": "python",
            "began": began,
            "ended": ended,
            "late": late,
            "delayed": late,
            "results": 0,
            "wrong": 0,
            "first_wrong": None,
        }

    launch = {
        "mpi": "mpich",
        "ranks": 2,
        "by_rank": [{"thread_level": "multiple"}],
        "cases": [{"bytes": plan.ARRIVAL_SIZE, "loop": "python", "lateness": 1e-3}],
        "points": [
            {
                "series": {
                    "wagma 1, grace=auto": series("wagma", [4_000, 9_000], [6_000, 9_000]),
                    "MPI_Allreduce in-place": series("mpi", [900_000, 9_999_000], [700_000, 5]),
                }
            }
        ],
    }
    (found,) = ratio_rows.arrival({"ranks": [2, 4], "launches": [launch]})
    assert found.ranks == 2
    assert found.measured == "5.00 us"
    assert "late 50.0%" in found.details
    assert "800 us" in found.details


def test_who_launches_ranks_does_not_initialise_mpi() -> None:
    modules = "import sys, wagma.benchmarks.table.command, wagma.benchmarks.table.collect\n"
    program = modules + "assert not any(name.startswith('mpi4py') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- the page ------------------------------------------------------------------------------------


def test_quoted_rows_are_replaced_by_the_pages() -> None:
    page = (
        "| what | ranks | wagma | MPI |\n| sum, 1 MiB | 2 | 5 us | 2.00 |\n"
        "| sum, 1 MiB | 4 | 9 us | 3.00 |\n| what | ranks | measured | |\n"
    )
    header = "text\n| what | ranks | wagma | MPI |\n"
    quoting = header + "| sum, 1 MiB | 4 | 8 us | 1.00 |\n| sum, 2 MiB | 4 | 8 us | 1.00 |\nend"
    assert report.requoted(quoting, page) == (
        header + "| sum, 1 MiB | 4 | 9 us | 3.00 |\n| sum, 2 MiB | 4 | 8 us | 1.00 |\nend"
    )


# ---- theory of the fastest K ---------------------------------------------------------------------


def test_a_replay_by_hand() -> None:
    computing = np.array([[1.0, 2.0, 9.0], [4.0, 1.0, 9.0], [1.0, 1.0, 2.0]])
    # Quorum 2. Version 0 at 2 (ranks 0, 1); they go on at 2.5; version 1 at 6.5 (rank 1 is there
    # since 3.5); at 7 they go on; version 2 at 8. Rank 2 arrives too late for any of them.
    found = replay(computing, 2, 0.5)
    assert found.seconds == pytest.approx(8.5 / 3)
    assert found.late_share == 0
    # Quorum 1. Rank 0 starts version 0 at 1 and would come back at 5. Rank 1 is late at 2, gets one
    # result, and starts version 1 at 3 and version 2 at 4.
    found = replay(computing, 1, 0.0)
    assert found.seconds == pytest.approx(4 / 3)
    assert found.late_share == 1 / 4


def test_a_late_rank_goes_on_with_the_newest_version() -> None:
    computing = np.array([[1.0, 3.5]] * 4 + [[9.0, 1.0]])
    # Rank 0 starts versions 0 to 3 at 1, 2, 3 and 4; rank 1 is late at 3.5 and again at 7, and in
    # time for none but the last.
    found = replay(computing, 1, 0.0)
    assert found.seconds == pytest.approx(8 / 5)
    assert found.late_share == 2 / 7


def test_replays_agree_with_what_is_known_of_exponential_times() -> None:
    s = Fastest(mean=1.0, versions=20000)
    computing = draws(s, 4, slow=False)
    everybody = replay(computing, 4, 0.0)
    assert everybody.seconds == pytest.approx(computing.max(axis=1).mean())
    assert everybody.seconds == pytest.approx(exponential_mean(1.0, 4, 4), rel=0.02)
    # K=1: of f ranks that compute for this version and 4 - f that compute in vain, each is next
    # with the same probability. The first start it, each of the others becomes one of the first.
    expected = 0.0
    for f in (4, 3, 2, 1):
        expected = 1 / 4 + (4 - f) / 4 * expected
    assert replay(computing, 1, 0.0).seconds == pytest.approx(expected, rel=0.02)
    assert exponential_mean(1.0, 1, 4) == pytest.approx(1 / 4)
    slow = draws(s, 4, slow=True)
    assert np.array_equal(slow, computing * [1, 1, 1, 2])


# ---- posted calls --------------------------------------------------------------------------------


def test_late_posts_do_not_count() -> None:
    delayed = np.array([[False, False], [True, False], [False, True]])
    computing = np.full((3, 2), 100, np.int64)
    series = of(
        np.zeros((3, 2)), [[105, 106], [190, 102], [103, 180]], delayed=delayed, computing=computing
    )
    summary = row.summary(series)
    assert summary.median == pytest.approx(3e-9)  # of 6, 2, 3
    assert summary.samples == 3
    late = row.late_ranks(series)  # 90 and 80
    assert late is not None
    assert (late.median, late.samples) == (pytest.approx(85e-9), 2)
