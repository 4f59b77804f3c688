"""The table of docs/results.md: what its rows follow from, in a short run of everything."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wagma.benchmarks.table import plan
from wagma.cli import main
from wagma.units import time_text

pytestmark = [pytest.mark.launch, pytest.mark.long]

TINY = [
    *("--quick", "--ranks", "2", "--mpi-ranks", "2"),
    *("--small-sizes", "4", "--large-sizes", "4KiB", "--mpi-sizes", "64KiB"),
]


def table(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wagma", "bench", "table", *arguments]
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
    """A short run of everything: the report, the page, and the report's file."""
    file = tmp_path_factory.mktemp("benchmark") / "report.json"
    page = file.with_suffix(".md")
    done = table(*TINY, "--environment", environment, "--json", str(file), "--page", str(page))
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), page.read_text(), file


def test_variables_of_wagma_stay_outside(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would change what a row says that it measures, or refuse it."""
    monkeypatch.setenv("WAGMA_TRANSPORT", "pigeon")
    done = table(*TINY, "--rows", "cost", "--environment", environment)
    assert done.returncode == 0, done.stderr


def points(report: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Cases, and what was measured of each."""
    return [
        (case, point)
        for launch in report["launches"]
        for case, point in zip(launch["cases"], launch["points"], strict=True)
    ]


def test_the_report_is_complete(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, printed, _ = finished
    # Groups of two of more ranks are not among two ranks.
    assert {row["group"] for row in report["table"]} == set(plan.ROWS) - {"mpi-groups"}
    environment = report["environment"]
    for key in ("cpu", "cores", "load_average", "python", "numpy", "wagma", "mpi4py", "commit"):
        assert key in environment
    for launch in report["launches"]:
        assert len(launch["by_rank"]) == launch["ranks"] == 2
        for rank in launch["by_rank"]:
            assert rank["library"]
            assert rank["affinity"]
        trips = launch["round_trips_ns"]
        assert len(trips) == (len(launch["cases"]) if launch["bound"] else 0)
        if trips:
            assert 0 < min(trips) < 1e6
            assert f"back in {np.median(trips):.0f} ns ({min(trips):.0f} to " in printed
    for case, point in points(report):
        mpi = {name for name, one in point["series"].items() if one["library"] == "mpi"}
        assert set(point["series"]) == set(case["wagma"]) | mpi
        assert len(mpi) == (2 if case["with_mpi"] else 0)
        warmed = case["blocks"] * (case["iterations"] + case["warmup"])
        for series in point["series"].values():
            assert series["loop"] == case["loop"]
            took = np.array(series["ended"]) - np.array(series["began"])
            assert took.shape == (case["blocks"] * case["iterations"], 2)
            assert took.min() > 0
            assert series["wrong"] == 0
            assert series["results"] == 2 * warmed
    for row in report["table"]:
        assert f"| {row['what']}" in printed


def seconds(series: dict[str, Any], left_out: Any = None) -> float:
    took = np.array(series["ended"]) - np.array(series["began"])
    if left_out is not None:
        took[np.array(left_out)] = 0
    return float(np.percentile(took.max(axis=1) * 1e-9, 50))


def test_ratios_follow_from_the_samples(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, _, _ = finished
    compared = set(plan.COMPARED) - {"arrival"}
    rows = [row for row in report["table"] if row["compared"] and row["group"] in compared]
    assert {row["group"] for row in rows} == compared
    assert [row["what"] for row in rows if row["group"] == "small"] == [
        'quorum="all", 4 B, from C',
        'quorum="all", 4 B, from Python',
    ]
    for row in rows:
        size = 4 if row["group"] == "small" else 4096
        loop = "c" if row["what"].endswith("from C") else "python"
        found = []
        for launch in report["launches"]:
            if launch["by_rank"][0]["thread_level"] != "multiple":
                continue
            for case, point in zip(launch["cases"], launch["points"], strict=True):
                if (case["bytes"], case["loop"]) == (size, loop):
                    times = {name: seconds(one) for name, one in point["series"].items()}
                    wagma = times[plan.COMPARED[row["group"]]]
                    mpi = min(time for name, time in times.items() if name.startswith("MPI"))
                    found.append((mpi, mpi / wagma))
        assert row["compared"]["ratio"] == pytest.approx(min(found)[1])
        assert row["measured"] == f"{min(found)[1]:.2f}x"


def test_what_python_adds_follows_from_the_samples(
    finished: tuple[dict[str, Any], str, Path],
) -> None:
    report, _, _ = finished
    rows = [row for row in report["table"] if row["group"] == "cost"]
    (launch,) = (x for x in report["launches"] if x["by_rank"][0]["thread_level"] == "multiple")
    expected = []
    for size in (4, 64):
        for name in ("wagma all", "wagma 1"):
            took = {
                case["loop"]: seconds(point["series"][name])
                for case, point in zip(launch["cases"], launch["points"], strict=True)
                if case["bytes"] == size
            }
            added = took["python"] - took["c"]
            # Rounded once more or less: between two of them lies no other text.
            near = (added + away * 1e-9 for away in (-1.0, -0.5, 0.0, 0.5, 1.0))
            expected.append({("-" if one < 0 else "") + time_text(abs(one)) for one in near})
    assert len(rows) == len(expected)
    for row, texts in zip(rows, expected, strict=True):
        assert row["measured"] in texts


def test_who_is_punctual_does_not_wait(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, _, _ = finished
    rows = [row for row in report["table"] if row["group"] == "arrival"]
    (launch,) = (x for x in report["launches"] if x["by_rank"][0]["thread_level"] == "multiple")
    measured = []
    for case, point in zip(launch["cases"], launch["points"], strict=True):
        if not case["lateness"]:
            continue
        times = {}
        for name, one in point["series"].items():
            delayed = np.array(one["delayed"])
            assert set(delayed.sum(axis=1)) == {1}
            times[name] = seconds(one, delayed)
        for name, time in times.items():
            if name.startswith("MPI"):  # its punctual callers wait for the late one
                assert time > case["lateness"] / 2
        if case["lateness"] == 1e-2:
            assert times["wagma 1, grace=auto"] < times["MPI_Allreduce in-place"]
        measured.append(time_text(times["wagma 1, grace=auto"]))
    assert [row["measured"] for row in rows] == measured


def test_posted_calls_are_compared_with_a_reduction(
    finished: tuple[dict[str, Any], str, Path],
) -> None:
    report, _, _ = finished
    settings = report["posted"]["overlap"]
    found = [x["posted"]["overlap"]["series"] for x in report["launches"] if x["posted"]]
    (row,) = (row for row in report["table"] if row["group"] == "overlap")
    ratios_ = []
    for series in found:
        assert list(series) == [
            *("wagma posted", "wagma blocking", "wagma present"),
            *("MPI_Iallreduce in-place", "MPI_Iallreduce two-buffers"),
        ]
        times = {}
        for name, one in series.items():
            assert one["wrong"] == 0
            delayed = np.array(one["delayed"])
            assert delayed.shape == (settings["iterations"], 2)
            # Nobody is late where all are present, and one rank elsewhere.
            assert set(delayed.sum(axis=1)) == {0 if name == "wagma present" else 1}
            computing = np.array(one["computing"])
            paid = np.array(one["ended"]) - np.array(one["began"]) - computing
            times[name] = float(np.median(np.where(delayed, 0, paid).max(axis=1)))
            assert computing.min() >= (0 if name == "wagma present" else 0.05 * 1e9)
        # Blocking callers wait for who is late, those who posted before do not.
        assert times["wagma blocking"] > settings["lateness"] * 1e9 / 2
        for name in ("wagma posted", "wagma present"):
            assert times[name] < times["wagma blocking"] / 2
        ratios_.append(times["wagma posted"] / times["wagma present"])
    assert float(row["measured"].removesuffix("x")) == pytest.approx(min(ratios_), abs=0.01)


def test_overlap_is_measured_beside_calls_without_computing(
    finished: tuple[dict[str, Any], str, Path],
) -> None:
    report, _, _ = finished
    settings = report["posted"]["iallreduce"]
    (series,) = (x["posted"]["iallreduce"]["series"] for x in report["launches"] if x["posted"])
    assert [one["library"] for one in series.values()] == ["wagma", "mpi", "mpi"]
    for one in series.values():
        parts = {name: np.array(one[name]) for name in ("posting", "waiting", "computing", "pure")}
        for ns in parts.values():
            assert ns.shape == (settings["iterations"], 2)
            assert ns.min() > 0
        overall = np.array(one["ended"]) - np.array(one["began"])
        assert np.all(parts["posting"] + parts["waiting"] + parts["computing"] <= overall + 100_000)
        # Pure calls and those beside computing, also those that are not counted, on both ranks.
        least = 2 * 2 * (settings["iterations"] + settings["warmup"])
        assert one["results"] >= least
        assert one["wrong"] == 0


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


def test_a_page_is_written_again_from_a_report(
    finished: tuple[dict[str, Any], str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, page, file = finished
    target = tmp_path / "results.md"
    assert main(["bench", "table", "--from", str(file), "--page", str(target)]) == 0
    assert target.read_text() == page
    assert "reached" in capsys.readouterr().out  # goals are for those who develop wagma


def test_the_page_has_no_goals_and_no_commit(finished: tuple[dict[str, Any], str, Path]) -> None:
    report, page, _ = finished
    assert not re.search("goal|reached|missed", page)
    assert str(report["environment"]["commit"]).split()[0] not in page
    assert report["environment"]["cpu"] in page
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == len(report["table"]) + page.count("\n|---|")
    for row in report["table"]:
        if row["compared"]:
            (line,) = (
                line for line in rows if line.startswith(f"| {row['what']} | {row['ranks']} |")
            )
            assert line.endswith(f" {row['compared']['ratio']:.2f} |")


@pytest.fixture(scope="module")
def falsified(environment: str) -> Callable[[str], str]:
    """What a run of the rows below says that falsifies results of a library, and so fails."""

    @cache
    def said(library: str) -> str:
        rows = ",".join(dict.fromkeys(row for row, of, _ in FALSIFIED if of == library))
        done = table(*TINY, "--rows", rows, "--environment", environment, "--corrupt", library)
        assert done.returncode == 1, done.stderr
        return done.stderr

    return said


# A row, a library, and the error that its falsified results give.
FALSIFIED = [
    ("all", "wagma", "1 wrong results; wagma all, rank 1, result 1: 1 of 1024 elements"),
    ("all", "mpi", "1 wrong results; MPI_Allreduce in-place, rank 1, result 1: 1 of 1024"),
    ("small", "wagma", "1 wrong results; wagma all, rank 1, result 1: 1 of 1 elements"),
    ("out-of-place", "wagma", "1 wrong results; wagma out of place, rank 1, result 1: 1 of"),
    # Pure calls, and those with computing.
    ("iallreduce", "wagma", "2 wrong results; wagma in-place, rank 1, result 1: 1 of 262144"),
    ("overlap", "wagma", "1 wrong results; wagma posted, rank 1, result 1: 1 of 262144"),
    ("overlap", "mpi", "1 wrong results; MPI_Iallreduce two-buffers, rank 1, result 1: 1 of"),
    ("k-of-p", "wagma", "1 wrong results; fastest, quorum=1, rank 0, result 1: 1 of 16384"),
]


@pytest.mark.parametrize(("library", "wrong"), [case[1:] for case in FALSIFIED])
def test_wrong_results_fail_the_run(
    falsified: Callable[[str], str], library: str, wrong: str
) -> None:
    """Each of them would by itself: whatever is said so ends in status 1."""
    failures = re.findall("^FAILED: .*", falsified(library), re.MULTILINE)
    assert any(wrong in failure for failure in failures), failures


def test_over_messages_other_numbers_of_ranks(environment: str, tmp_path: Path) -> None:
    """What has shared memory is not asked for, with any number of ranks."""
    file = tmp_path / "report.json"
    done = table(
        *(*TINY, "--ranks", "3", "--mpi-ranks", "2", "--rows", "mpi"),
        *("--environment", environment, "--json", str(file)),
    )
    assert done.returncode == 0, done.stderr
    launches = json.loads(file.read_text())["launches"]
    assert {launch["ranks"] for launch in launches} == {2}


def test_without_mpi_the_run_fails_and_says_so(tmp_path: Path) -> None:
    done = table(*TINY, "--rows", "all", "--environment", str(tmp_path))
    assert done.returncode == 1
    assert "no MPI was found" in done.stderr


def test_ranks_that_fail_fail_the_run(environment: str) -> None:
    done = table(*TINY, "--rows", "cost", "--environment", environment, "--timeout", "10ms")
    assert done.returncode == 1
    assert "not done after 0.01 s" in done.stderr


def test_what_is_wrong_with_options_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"runs": []}')
    for arguments, words in (
        (("--rows", "all,fast"), "no such row: fast"),
        (("--ranks", "1"), "1 is too small"),
        (("--large-sizes", "6"), "a multiple of 4 bytes"),
        (("--page", str(tmp_path / "none" / "page.md")), "there is no folder"),
        (("--quoted-in", str(tmp_path / "none")), "it needs --page"),
        (("--from", str(tmp_path / "none")), "No such file"),
        (("--from", str(other)), "other.json: wagma bench table --json did not write it"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["bench", "table", *arguments])
        assert end.value.code == 2
        assert words in capsys.readouterr().err
