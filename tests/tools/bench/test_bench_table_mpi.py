"""The rows over MPI of docs/results.md: what is measured, and what is made of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from wagma.benchmarks.table import cost_rows, plan, ratio_rows, scenario_rows
from wagma.benchmarks.table.row import Row
from wagma.memory import Room

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, MIB, 16 * MIB, 100 * MIB)
ENOUGH = Room(shared=1 << 40, total=1 << 40)


def cases(ranks: int, *rows: str, **changes: Any) -> list[plan.Case]:
    options: dict[str, Any] = {"with_mpi": True, "quick": False, "room": ENOUGH} | changes
    return plan.cases(rows, ranks, (), (MIB,), SIZES, **options)[0]


# ---- plan ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [
        (2, [64 * KIB, MIB, 16 * MIB, 100 * MIB]),
        (4, [64 * KIB, MIB, 16 * MIB]),
        (8, [64 * KIB, MIB]),
    ],
)
def test_more_ranks_have_smaller_arrays(ranks: int, sizes: list[int]) -> None:
    found = cases(ranks, "mpi")
    assert [case.bytes for case in found] == sizes
    assert all(case.with_mpi and case.loop == "python" for case in found)


def test_eight_ranks_on_few_cores_have_few_iterations() -> None:
    (many,), (few,) = (
        [case for case in cases(ranks, "mpi") if case.bytes == 64 * KIB] for ranks in (2, 8)
    )
    assert few.blocks * few.iterations < many.blocks * many.iterations / 10


def test_handles_with_threads_are_measured_alone() -> None:
    found = [case.wagma for case in cases(4, "all", "mpi", "mpi-groups") if case.bytes == MIB]
    assert sorted(found) == [("wagma all",), ("wagma over MPI",), ("wagma pairs over MPI",)]


@pytest.mark.parametrize("ranks", [2, 8])
def test_groups_of_two_are_measured_of_four(ranks: int) -> None:
    assert cases(4, "mpi-groups")
    assert not cases(ranks, "mpi-groups")


def test_nothing_is_measured_over_an_mpi_that_is_not_compared() -> None:
    assert not cases(4, "mpi", "mpi-groups", with_mpi=False)


def test_arrays_over_mpi_are_private() -> None:
    needed = plan.required_bytes(("wagma over MPI",), with_mpi=True, size=MIB, ranks=2)
    assert (needed.shared, needed.total) == (0, 2 * 6 * MIB)


# ---- rows ----------------------------------------------------------------------------------------


def series(library: str, *us: float) -> dict[str, Any]:
    """Return a series of two ranks, the second of which takes twice as long."""
    ended = [[round(500 * one), round(1000 * one)] for one in us]
    return {
        "library": library,
        "loop": "python",
        "began": [[0, 0]] * len(us),
        "ended": ended,
        "late": [[False, False]] * len(us),
        "results": 0,
        "wrong": 0,
        "first_wrong": None,
    }


def launch(mpi: str, ranks: int, level: str = "multiple", **point: Any) -> dict[str, Any]:
    case = {"bytes": MIB, "loop": "python", "lateness": 0}
    by_rank = [{"thread_level": level, **point.pop("scenarios", {})}]
    return {
        "mpi": mpi,
        "ranks": ranks,
        "by_rank": by_rank,
        "cases": [case],
        "points": [{"bytes": MIB, "series": point["series"]}],
    }


def report(*launches: dict[str, Any]) -> dict[str, Any]:
    return {
        "ranks": [2, 4],
        "mpi_ranks": [2, 4, 8],
        "over_mpi": [64 * KIB, MIB],
        "training": {"sleep": 0.3, "window": 128},
        "launches": list(launches),
    }


def shown(rows: Iterator[Row]) -> list[tuple[str, int, str, str, str]]:
    return [(row.what, row.ranks, row.goal, row.measured, row.verdict) for row in rows]


def test_each_mpi_is_compared_with_itself() -> None:
    forms = ("MPI_Allreduce in-place", "MPI_Allreduce two-buffers")
    slow = {"wagma over MPI": series("wagma", 100), forms[0]: series("mpi", 88)}
    fast = {
        "wagma over MPI": series("wagma", 50),
        forms[0]: series("mpi", 60),
        forms[1]: series("mpi", 40),
    }
    found = report(
        launch("mpich", 2, series=slow),
        launch("mpich", 2, "single", series=fast),
        launch("openmpi", 2, series=fast),
        launch("openmpi", 8, series=fast),
    )
    what = 'transport="mpi", quorum="all", {}, 1 MiB'
    assert shown(ratio_rows.over_mpi(found, "mpi")) == [
        (what.format("MPICH"), 2, ">= 0.87x", "0.88x", "reached"),
        (what.format("Open MPI"), 2, ">= 0.87x", "0.80x", "missed"),
        (what.format("Open MPI"), 8, ">= 0.87x", "0.80x", "missed"),
    ]


def test_groups_are_compared_with_sums_of_all() -> None:
    measured = {
        "wagma pairs over MPI": series("wagma", 50),
        "MPI_Allreduce in-place": series("mpi", 100),
        "MPI_Allreduce of groups of 2 in-place": series("mpi", 25),
    }
    (row,) = ratio_rows.over_mpi(report(launch("openmpi", 4, series=measured)), "mpi-groups")
    assert (row.goal, row.measured, row.verdict) == (">= 1x", "2.00x", "reached")
    assert "MPI_Allreduce of groups of 2 in-place 25.0 us" in row.details


def test_the_others_are_blocked_as_long_as_without_a_sleeper() -> None:
    def rank(present_us: float, us: float, sleeper: bool) -> dict[str, Any]:
        calls = {"samples_ns": [round(1000 * us)], "grace": [2e-4], "behind": [3]}
        scenario = {
            "sleeper": sleeper,
            "present": {"samples_ns": [round(1000 * present_us)]},
            "handles": [calls],
        }
        return {"thread_level": "multiple", "mpi-straggler": scenario}

    found = launch("mpich", 2, series={})
    # The median of 100 and 300 us is 200 us; with 200 us of grace and 1 ms of progress: 1.4 ms.
    for us, verdict in ((1400, "reached"), (1401, "missed")):
        found["by_rank"] = [rank(100, us, sleeper=False), rank(300, 9e6, sleeper=True)]
        half, most = scenario_rows.straggler_over_mpi(report(found))
        assert (half.goal, half.verdict) == ("<= 1.40 ms", verdict)
        assert (most.goal, most.verdict) == ("<= 1.50 ms", "reached")
        assert "p99" in most.what


def test_the_rank_whose_thread_takes_most_counts() -> None:
    def rank(cpu_ns: int) -> dict[str, Any]:
        idle = {"threads": 1, "cpu_ns": cpu_ns, "wakeups": 1800, "seconds": 2.0}
        return {"thread_level": "multiple", "mpi-idle": idle}

    found = launch("openmpi", 2, series={})
    found["by_rank"] = [rank(10_000_000), rank(82_000_000)]
    (row,) = cost_rows.idle(report(found))
    assert (row.measured, row.goal, row.verdict) == ("4.10%", "<= 4%", "missed")
    assert "900 wake-ups per second" in row.details
