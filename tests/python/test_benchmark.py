"""The benchmark: its arithmetic, its checks of results, and a short run from end to end."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import plan  # noqa: E402
import ratios  # noqa: E402
import scenario_rows  # noqa: E402
import theory  # noqa: E402
from compare import Checked  # noqa: E402
from contributions import CHUNK, Contributions  # noqa: E402
from row import time_text  # noqa: E402

ENOUGH = plan.Room(shared=1 << 40, total=1 << 40)
TINY = ["--quick", "--ranks", "2", "--small-sizes", "4", "--large-sizes", "4KiB"]


# ---- arithmetic ----------------------------------------------------------------------------------


def test_a_time_is_that_of_the_slowest_rank() -> None:
    assert ratios.slowest([[1, 5, 2], [3, 4, 2]]) == [3, 5, 2]
    with pytest.raises(ValueError, match="zip"):
        ratios.slowest([[1, 2], [3]])


def test_summaries_are_in_seconds() -> None:
    summary = ratios.summarise(range(1_000, 102_000, 1_000))
    assert summary.median == pytest.approx(51e-6)
    assert summary.p10 == pytest.approx(11e-6)
    assert summary.p90 == pytest.approx(91e-6)
    assert summary.samples == 101
    with pytest.raises(ValueError, match="no samples"):
        ratios.summarise([])


def at(median_s: float) -> ratios.Summary:
    return ratios.Summary(median_s, median_s, median_s, 1)


def test_the_fastest_mpi_counts_and_wagma_of_its_launch() -> None:
    slow_mpi = ratios.Measured("A", at(4.0), {"in place": at(9.0), "two buffers": at(8.0)}, 0.0)
    fast_mpi = ratios.Measured("B", at(2.0), {"in place": at(7.0), "two buffers": at(6.0)}, 0.25)
    compared = ratios.against_better([slow_mpi, fast_mpi])
    assert compared.ratio == 3.0
    assert (compared.launch, compared.form) == ("B", "two buffers")
    assert (compared.wagma, compared.mpi, compared.late_share) == (at(2.0), at(6.0), 0.25)


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
    assert ratios.verdict(ratio, goal, late, 0.01) == expected


def test_what_does_not_fit_is_left_out_with_a_reason() -> None:
    def chosen(room: plan.Room) -> tuple[list[int], list[str]]:
        cases, left_out = plan.cases(
            ("all", "quorum1"), 4, (), (1 << 20, 16 << 20), with_mpi=True, quick=True, room=room
        )
        return [case.bytes for case in cases], left_out

    assert chosen(ENOUGH) == ([1 << 20, 16 << 20], [])
    needed = plan.required_bytes(("wagma all", "wagma 1", *plan.LARGE_FORMS), 16 << 20, 4)
    assert needed.shared == 7 * 4 * (16 << 20)
    for room in (
        plan.Room(needed.shared - 1, needed.total),
        plan.Room(needed.shared, needed.total - 1),
    ):
        sizes, left_out = chosen(room)
        assert sizes == [1 << 20]
        assert len(left_out) == 1
        assert "448 MiB of /dev/shm" in left_out[0]
    assert chosen(needed)[1] == []


# ---- theory of the fastest K ---------------------------------------------------------------------


def test_a_replay_by_hand() -> None:
    computing = np.array([[1.0, 2.0, 9.0], [4.0, 1.0, 9.0], [1.0, 1.0, 2.0]])
    # Quorum 2. Version 0 at 2 (ranks 0, 1); they go on at 2.5; version 1 at 6.5 (rank 1 is there
    # since 3.5); at 7 they go on; version 2 at 8. Rank 2 arrives too late for any of them.
    found = theory.replay(computing, 2, 0.5)
    assert found.seconds == pytest.approx(8.5 / 3)
    assert found.late_share == 0
    # Quorum 1. Rank 0 starts version 0 at 1 and would come back at 5. Rank 1 is late at 2, gets one
    # result, and starts version 1 at 3 and version 2 at 4.
    found = theory.replay(computing, 1, 0.0)
    assert found.seconds == pytest.approx(4 / 3)
    assert found.late_share == 1 / 4


def test_a_late_rank_goes_on_with_the_newest_version() -> None:
    computing = np.array([[1.0, 3.5]] * 4 + [[9.0, 1.0]])
    # Rank 0 starts versions 0 to 3 at 1, 2, 3 and 4; rank 1 is late at 3.5 and again at 7, and in
    # time for none but the last.
    found = theory.replay(computing, 1, 0.0)
    assert found.seconds == pytest.approx(8 / 5)
    assert found.late_share == 2 / 7


def test_replays_agree_with_what_is_known_of_exponential_times() -> None:
    s = plan.Fastest(mean=1.0, versions=20000)
    computing = theory.draws(s, 4, slow=False)
    everybody = theory.replay(computing, 4, 0.0)
    assert everybody.seconds == pytest.approx(computing.max(axis=1).mean())
    assert everybody.seconds == pytest.approx(theory.memoryless(1.0, 4, 4), rel=0.02)
    # K=1: of f ranks that compute for this version and 4 - f that compute in vain, each is next
    # with the same probability. The first start it, each of the others becomes one of the first.
    expected = 0.0
    for f in (4, 3, 2, 1):
        expected = 1 / 4 + (4 - f) / 4 * expected
    assert theory.replay(computing, 1, 0.0).seconds == pytest.approx(expected, rel=0.02)
    assert theory.memoryless(1.0, 4, 1) == pytest.approx(1 / 4)
    slow = theory.draws(s, 4, slow=True)
    assert np.array_equal(slow, computing * [1, 1, 1, 2])


def test_late_posts_do_not_count() -> None:
    def rank(samples: list[int], punctual: list[bool]) -> dict[str, Any]:
        return {"iallreduce": {"posted": {"samples_ns": samples, "punctual": punctual}}}

    by_rank = [rank([5, 90, 3], [True, False, True]), rank([6, 2, 80], [True, True, False])]
    summary = scenario_rows.punctual({"by_rank": by_rank}, "posted")
    assert summary.median == pytest.approx(3e-9)  # of 6, 2, 3
    assert summary.samples == 3


# ---- checks of results ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 1000, CHUNK + 17])
def test_sums_tell_whose_versions_they_hold(count: int) -> None:
    contributions = Contributions(count)
    holds = [(0, 7), (1, 7), (2, 6), (3, -1)]
    total = np.zeros(count, np.float32)
    x = np.empty(count, np.float32)
    for rank, version in holds:
        contributions.write(x, rank, version)
        total += x
    assert contributions.wrong(total, holds) == 0
    assert contributions.wrong(total, holds[::-1]) == 0
    for others in (
        holds[:3],  # a rank is missing
        [(0, 7), (1, 7), (2, 7), (3, -1)],  # another version
        [(0, 7), (0, 7), (2, 6), (3, -1)],  # one rank twice
        [(0, 6), (1, 8), (2, 6), (3, -1)],  # versions whose sum is the same
        [*holds, (0, 7)],  # the own contribution once more
    ):
        assert contributions.wrong(total, others) == count
    total[-1] += 1
    assert contributions.wrong(total, holds) == 1
    if count > 1:
        total[-1] -= 1
        total[:] = np.roll(total, 1)  # everything in the wrong place
        assert contributions.wrong(total, holds) > count // 2


def test_a_spoilt_result_is_counted_and_described() -> None:
    contributions = Contributions(10)
    checked = Checked(0, contributions, spoil=1)
    x = np.empty(10, np.float32)
    for version in range(3):
        contributions.write(x, 0, version)
        checked.check("series", x, [(0, version)], late=version == 2)
    counts = checked.counts()
    assert (counts["results"], counts["wrong"], counts["late"]) == (3, 1, 1)
    assert "series, rank 0, result 1: 1 of 10 elements" in counts["first_wrong"]


# ---- from end to end -----------------------------------------------------------------------------


def engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/engine.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def environment() -> str:
    if not Path(sys.prefix, "bin/mpiexec").exists():
        pytest.skip(f"no mpiexec in {sys.prefix}/bin")
    return sys.prefix


@pytest.fixture(scope="module")
def finished(
    environment: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], str, Path]:
    """A short run of everything: the report, what was printed, and the report's file."""
    file = tmp_path_factory.mktemp("benchmark") / "report.json"
    done = engine(*TINY, "--environment", environment, "--json", str(file), "--markdown")
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout, file


def test_the_report_is_complete(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, printed, _ = finished
    assert {row["group"] for row in report["table"]} == set(plan.ROWS)
    environment = report["environment"]
    for key in ("cpu", "cores", "load_average", "python", "numpy", "wagma", "mpi4py", "commit"):
        assert key in environment
    for launch in report["launches"]:
        assert len(launch["by_rank"]) == launch["ranks"] == 2
        for rank in launch["by_rank"]:
            assert rank["library"]
            assert rank["affinity"]
            for case, measured in zip(launch["cases"], rank["cases"], strict=True):
                assert set(measured) == set(case["series"])
                for series in measured.values():
                    assert len(series["samples_ns"]) == case["blocks"] * case["iterations"]
                    assert min(series["samples_ns"]) > 0
                    assert series["wrong"] == 0
                    warmed = case["blocks"] * (case["iterations"] + case["warmup"])
                    assert series["results"] == warmed
    for row in report["table"]:
        assert f"| {row['what']}" in printed


def test_ratios_follow_from_the_samples(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, _, _ = finished
    rows = [row for row in report["table"] if row["compared"]]
    assert {row["group"] for row in rows} == set(plan.COMPARED)
    for row in rows:
        size = 4 if row["group"] == "small" else 4096
        found = []
        for launch in report["launches"]:
            if launch["by_rank"][0]["thread_level"] != "multiple":
                continue
            i = [case["bytes"] for case in launch["cases"]].index(size)
            ranks = [rank["cases"][i] for rank in launch["by_rank"]]
            times = {
                name: median(map(max, *(rank[name]["samples_ns"] for rank in ranks)))
                for name in ranks[0]
            }
            wagma = times[plan.COMPARED[row["group"]]]
            mpi = min(time for name, time in times.items() if name.startswith("mpi"))
            found.append((mpi, mpi / wagma))
        assert row["compared"]["ratio"] == pytest.approx(min(found)[1])
        assert row["measured"] == f"{min(found)[1]:.2f}x"


def test_posted_calls_are_compared_with_a_reduction(
    finished: tuple[dict[str, Any], str, Path],
) -> None:
    report, _, _ = finished
    launches = [x["by_rank"] for x in report["launches"] if "iallreduce" in x["by_rank"][0]]
    (row,) = (row for row in report["table"] if row["group"] == "iallreduce")
    settings = report["iallreduce"]
    found = []
    for ranks in launches:
        times = {}
        for name in ranks[0]["iallreduce"]:
            series = [rank["iallreduce"][name] for rank in ranks]
            assert all(one["wrong"] == 0 for one in series)
            punctual = np.array([one["punctual"] for one in series])
            assert punctual.shape == (2, settings["blocks"] * settings["iterations"])
            # Nobody is late where all are present, and one rank elsewhere.
            assert set(punctual.sum(axis=0)) == {2 if name == "wagma present" else 1}
            samples = np.array([one["samples_ns"] for one in series])
            times[name] = float(np.median(np.where(punctual, samples, 0).max(axis=0)))
        assert set(times) == {
            *("wagma present", "wagma blocking", "wagma posted"),
            *("mpi in place", "mpi two buffers"),
        }
        # Blocking callers wait for who is late, those who posted before do not.
        assert times["wagma blocking"] > settings["lateness"] * 1e9 / 2
        for name in ("wagma posted", "wagma present"):
            assert times[name] < times["wagma blocking"] / 2
        found.append(times["wagma posted"] / times["wagma present"])
    assert float(row["measured"].removesuffix("x")) == pytest.approx(min(found), abs=0.01)


def test_the_fastest_k_get_every_version(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, _, _ = finished
    (by_rank,) = (x["by_rank"] for x in report["launches"] if "k-of-p" in x["by_rank"][0])
    rows = [row for row in report["table"] if row["group"] == "k-of-p"]
    versions = report["k-of-p"]["versions"]
    assert len(rows) == 3  # K=1 of 2, with equal ranks, with a slow one, and what that one costs
    for runs, row in zip(
        zip(*(rank["k-of-p"] for rank in by_rank), strict=True), rows, strict=False
    ):
        in_time = set()
        for run in runs:
            assert run["counts"]["results"] == report["k-of-p"]["rounds"] + versions
            assert run["counts"]["wrong"] == 0
            calls = zip(run["version"], run["late"], strict=True)
            in_time |= {version for version, late in calls if not late}
        assert in_time == set(range(versions))
        first = min(run["ended_ns"][-1] for run in runs) - min(run["started_ns"] for run in runs)
        assert row["measured"] == time_text(first * 1e-9 / versions)


def test_a_report_is_printed_again(finished: tuple[dict[str, Any], str, Path]) -> None:
    _, printed, file = finished
    again = engine("--from", str(file), "--markdown")
    assert again.returncode == 0
    assert again.stdout == printed


@pytest.mark.parametrize(
    ("row", "library", "wrong"),
    [
        ("all", "wagma", "wagma all, rank 1, result 1: 1 of 1024 elements"),
        ("all", "mpi", "mpi in place, rank 1, result 1: 1 of 1024 elements"),
        ("out-of-place", "wagma", "wagma out of place, rank 1, result 1: 1 of 1024 elements"),
        ("iallreduce", "wagma", "wagma posted, rank 0, result 1: 1 of 262144 elements"),
        ("iallreduce", "mpi", "mpi two buffers, rank 0, result 1: 1 of 262144 elements"),
        ("k-of-p", "wagma", "fastest, quorum=1, rank 0, result 1: 1 of 16384 elements"),
    ],
)
def test_wrong_results_fail_the_run(environment: str, row: str, library: str, wrong: str) -> None:
    done = engine(*TINY, "--rows", row, "--environment", environment, "--corrupt", library)
    assert done.returncode == 1
    assert f"1 wrong results; {wrong}" in done.stderr


def test_without_mpi_the_run_fails_and_says_so(tmp_path: Path) -> None:
    done = engine(*TINY, "--rows", "all", "--environment", str(tmp_path))
    assert done.returncode == 1
    assert "no MPI was found" in done.stderr


def test_ranks_that_fail_fail_the_run(environment: str) -> None:
    done = engine(*TINY, "--rows", "all", "--environment", environment, "--timeout", "0.01")
    assert done.returncode == 1
    assert "not done after 0.01 s" in done.stderr
