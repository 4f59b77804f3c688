"""Check what benchmarks print: OSU's text to the letter, nccl-tests' columns, CSV."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_reports import BAD, ENVIRONMENT, GOOD, MPI, POSTED, SLOWER, compared, point, series, text

from wagma.benchmarks.samples import Point
from wagma.benchmarks.settings import Settings
from wagma.benchmarks.views import remarks
from wagma.benchmarks.views.rows import COLUMNS


@pytest.fixture(autouse=True)
def _version(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("osu", "nccl"):
        monkeypatch.setattr(f"wagma.benchmarks.views.{module}.version", lambda _: "1.2.3")


# ---- OSU: the published output of OSU Micro-Benchmarks 7.5, with our name and times ------------

ALLREDUCE = """
# wagma Allreduce Latency Test v1.2.3
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)
8                       3.50
1048576                 3.50
"""
FULL = """
# wagma Allreduce Latency Test v1.2.3
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
8                       3.50              2.50              4.50           4
"""
VALIDATED = """
# wagma Allreduce Latency Test v1.2.3
# Datatype: MPI_DOUBLE.
# Size       Avg Latency(us)        Validation
8                       3.50              Pass
"""
TAILS = """
# wagma Allreduce Latency Test v1.2.3
# Datatype: MPI_FLOAT.
# Size       Avg Latency(us)  P50 Tail Lat(us)  P90 Tail Lat(us)  P99 Tail Lat(us)
8                       3.50              3.00              4.00              4.00
"""
EVERYTHING = (
    "\n"
    "# wagma Allreduce Latency Test v1.2.3\n"
    "# Datatype: MPI_INT.\n"
    "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
    "        Validation   P5 Tail Lat(us)  P100 Tail Lat(us)\n"
    "8                       3.50              2.50              4.50           4"
    "              Pass              2.00              5.00\n"
)
IALLREDUCE = """
# wagma Non-blocking Allreduce Latency Test v1.2.3
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Datatype: MPI_FLOAT.
# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
8                       3.50              1.00              1.80              0.00
"""
IALLREDUCE_FULL = (
    "\n"
    "# wagma Non-blocking Allreduce Latency Test v1.2.3\n"
    "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n"
    "\n"
    "# Datatype: MPI_FLOAT.\n"
    "# Size           Overall(us)       Compute(us)    Coll. Init(us)      MPI_Test(us)"
    "      MPI_Wait(us)    Pure Comm.(us)     Min Comm.(us)     Max Comm.(us)        Overlap(%)"
    "        Validation\n"
    "8                       3.50              1.00              0.50              0.20"
    "              0.50              1.80              1.60              2.00              0.00"
    "              Pass\n"
)
BANDWIDTH = """
# wagma Allreduce Bandwidth Test v1.2.3
# Datatype: MPI_FLOAT.
# Size           algbw(GB/s)       busbw(GB/s)
1048576               233.02            233.02
"""


@pytest.mark.parametrize(
    ("expected", "settings", "points"),
    [
        (ALLREDUCE, Settings("allreduce", (8,)), [point(), point(size=1 << 20)]),
        (FULL, Settings("allreduce", (8,), full=True), [point()]),
        (
            VALIDATED,
            Settings("allreduce", (8,), "float64", validate=True),
            [point(series(checks=GOOD))],
        ),
        (TAILS, Settings("allreduce", (8,), percentiles=(50.0, 90.0, 99.0)), [point()]),
        (
            EVERYTHING,
            Settings(
                "allreduce", (8,), "int32", full=True, validate=True, percentiles=(5.0, 100.0)
            ),
            [point(series(checks=GOOD))],
        ),
        (IALLREDUCE, Settings("iallreduce", (8,)), [point(series(**POSTED))]),
        (
            IALLREDUCE_FULL,
            Settings("iallreduce", (8,), full=True, validate=True),
            [point(series(**POSTED, checks=GOOD))],
        ),
        (BANDWIDTH, Settings("bandwidth", (8,)), [point(size=1 << 20)]),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_osu_to_the_letter(expected: str, settings: Settings, points: list[Point]) -> None:
    assert text(settings, *points) == expected


def test_titles() -> None:
    assert "# wagma Group Allreduce Latency Test v1.2.3\n" in text(
        Settings("group-allreduce", (8,), quorum=1), point()
    )
    assert "# wagma-CUDA Allreduce Latency Test v1.2.3\n" in text(
        Settings("allreduce", (8,), buffer="cupy"), point()
    )


@pytest.mark.parametrize("kind", ["allreduce", "group-allreduce", "iallreduce"])
@pytest.mark.parametrize("more", [{}, {"full": True, "validate": True, "percentiles": (50.0,)}])
def test_parsers_of_sites_read_it(kind: str, more: dict[str, Any]) -> None:
    settings = Settings(kind, (8,), baselines=("mpi",), quorum=1, **more)
    shown = text(settings, point(series(**POSTED, checks=GOOD)), point(size=16))
    found = re.findall(r"^8\s+(\S+)", shown, re.MULTILINE)
    assert found == ["3.50"]
    rows = [line.split() for line in shown.splitlines() if line and not line.startswith("#")]
    assert [row[0] for row in rows if row[0] != "DATA"] == ["8", "16"]


def test_the_late_share_is_beside_every_latency_that_waits_for_few() -> None:
    late = [[True, False], [False, False], [False, False], [False, False]]
    shown = text(Settings("allreduce", (8,), quorum=1, grace=0.5), point(series(late=late)))
    assert shown.splitlines()[2:] == [
        "# Datatype: MPI_FLOAT.",
        "# Quorum: 1, late: stale, grace: 0.5.",
        "# Size       Avg Latency(us)           Late(%)",
        "8                       3.50             12.50",
    ]


def test_a_transport_that_was_asked_for_is_told() -> None:
    shown = text(Settings("allreduce", (8,), transport="mpi"), point())
    assert shown.splitlines()[2:4] == ["# Datatype: MPI_FLOAT.", "# Transport: mpi."]


def test_baselines_come_last() -> None:
    settings = Settings("allreduce", (8,), baselines=("mpi", "gloo"), full=True)
    said, header, row = text(settings, compared()).splitlines()[-3:]
    assert said == "# Speedup: ratio of the medians; other columns may be averages."
    assert header.startswith(
        FULL.splitlines()[3] + "  MPI_Allreduce(us)  Speedup over MPI_Allreduce"
    )
    assert header.endswith("  Speedup over gloo")
    assert row.split() == ["8", "3.50", "2.50", "4.50", "4", "7.00", "2.00", "n/a", "n/a"]
    assert len(header) == len(row)


def test_groups_have_baselines_of_groups_and_of_all() -> None:
    groups = series("MPI_Allreduce of groups of 2 in-place", SLOWER)
    settings = Settings("group-allreduce", (8,), baselines=("mpi",))
    header, row = text(settings, point(series(), series(*MPI), groups)).splitlines()[-2:]
    for name in ("of groups", "of all"):
        assert f"  MPI_Allreduce {name}(us)  Speedup over MPI_Allreduce {name}" in header
    assert row.split()[-4:] == ["7.00", "2.00", "8.25", "2.11"]
    lines = text(
        replace(settings, format="nccl"), point(series(), series(*MPI), groups)
    ).splitlines()
    assert lines[7].endswith("MPI_Allreduce of groups  speedup  MPI_Allreduce of all  speedup")
    assert lines[9].split()[-4:] == ["9.00", "2.00", "9.50", "2.11"]


def test_no_ratio_between_calls_from_c_and_from_python() -> None:
    slow = replace(series("gloo", SLOWER), loop="python")
    for name in ("osu", "nccl"):
        settings = Settings("allreduce", (8,), format=name, baselines=("gloo",))
        shown = text(settings, point(series(), slow)).splitlines()
        row = next(line for line in shown if line.split()[:1] == ["8"])
        assert row.split()[-1] == "n/a"
    skew = Settings("skew", (8,))
    assert text(skew, point(series(), slow)).splitlines()[-1].split()[-2:] == ["n/a", "gloo"]
    csv_rows = table(text(Settings("allreduce", (8,), format="csv"), point(series(), slow)))
    assert csv_rows[1]["ratio"] == ""


def test_baselines_of_bandwidths_and_of_posted_calls() -> None:
    settings = Settings("bandwidth", (8,), baselines=("mpi",), quorum=1)
    row = text(settings, replace(compared(), size=1 << 20)).splitlines()[-1].split()
    assert row == ["1048576", "233.02", "233.02", "0.00", "116.51", "2.00"]
    beside = series("MPI_Iallreduce in-place", SLOWER, **(POSTED | {"pure": 6000}))
    settings = Settings("iallreduce", (8,), baselines=("mpi-nonblocking",))
    row = text(settings, point(series(**POSTED), beside)).splitlines()[-1].split()
    assert row == ["8", "3.50", "1.00", "1.80", "0.00", "7.00", "0.00", "2.00"]


def test_the_arrival_is_told_where_it_is_not_osu_s() -> None:
    assert "# Datatype: MPI_FLOAT.\n# Arrival: one-late:1ms.\n# Size" in text(
        Settings("allreduce", (8,), arrival="one-late:1ms"), point()
    )


def test_one_wrong_result_fails() -> None:
    settings = Settings("allreduce", (8,), validate=True)
    shown = text(settings, point(series(checks=BAD)), point(series(checks=GOOD), size=16))
    assert shown.splitlines()[4:] == [
        "8                       3.50              Fail",
        "16                      3.50              Pass",
        "DATA VALIDATION ERROR: wagma bench allreduce exited with status 1 on message size 8.",
    ]
    of_mpi = point(series(checks=GOOD), series(*MPI, checks=BAD))
    assert "Fail" in text(settings, of_mpi)
    assert "Fail" in text(settings, point())  # nothing was compared
    assert "DATA" not in text(Settings("allreduce", (8,)), point(series(checks=BAD)))


# ---- skew and overlap ----------------------------------------------------------------------------


def test_skew_has_a_line_for_each_series() -> None:
    settings = Settings("skew", (8,), quorum=1, arrival="one-late", skews=(0.0, 1e-3))
    punctual, waiting = [[1000, 1000]], [[3000, 1000]]
    found = point(
        series(own=punctual, began=[[0, 2000]], late=[[False, True]]),
        series("MPI_Allreduce in-place", waiting, began=[[0, 2000]]),
        arrival="one-late",
        amplitude=2e-6,
    )
    header, *rows = text(settings, found).splitlines()[-3:]
    assert re.split(r"\s{2,}", header.removeprefix("# Size").strip()) == [
        "T(us)",
        *(f"{what} P{percent}(us)" for what in ("Own", "Last") for percent in (50, 90, 99)),
        *("Late(%)", "Time/wagma's", "Series"),
    ]
    own, last = ["1.00"] * 3, ["1.00"] * 3
    assert rows[0].split() == ["8", "2.00", *own, *last, "50.00", "1.00", "wagma", "in-place"]
    own = ["3.00"] * 3
    assert rows[1].split()[:10] == ["8", "2.00", *own, *last, "0.00", "3.00"]
    assert rows[1].endswith("3.00  MPI_Allreduce in-place")
    assert header.index("Series") == rows[0].index("wagma")


def test_skew_in_full() -> None:
    settings = Settings("skew", (8,), full=True, validate=True, percentiles=(75.0,))
    header, row = text(settings, point(series(checks=GOOD), amplitude=0.0)).splitlines()[-2:]
    assert "Own P75(us)" in header
    assert "P50" not in header
    assert "Late(%)" not in header
    assert row.split() == [
        *("8", "0.00", "5.25", "5.25", "58.33", "4", "Pass", "1.00", "wagma", "in-place")
    ]


def test_overlap_is_what_punctual_ranks_pay() -> None:
    delayed = [[False, True], [True, False], [False, True], [False, True]]
    found = point(
        series(delayed=delayed, **POSTED),
        series("MPI_Iallreduce in-place", SLOWER, delayed=delayed, **POSTED),
    )
    settings = Settings("overlap", (8,), quorum=1, lateness=1e-3, percentiles=(0.0,))
    lines = text(settings, found).splitlines()
    assert lines[1:4] == [
        "# wagma Allreduce Overlap Test v1.2.3",
        "# Datatype: MPI_FLOAT.",
        "# One rank posts 1000.00 us late.",
    ]
    # rank 0, 1, 0 and 0 are punctual, and compute for 1 us
    # for 2, 1, 4 and 5 us the others, which are late, are in their calls
    assert lines[-2].split()[:8] == ["8", "1.00", "0.00", "3.00", "0.50", "0.70", "0.00", "1.00"]
    assert lines[-1].split()[2:4] == ["4.00", "8.00"]
    assert lines[-1].split()[7] == "1.60"  # 4 us of 2.5: medians of what is paid
    present = text(settings, point(series(delayed=False, **POSTED))).splitlines()[-1]
    assert present.split()[3] == "n/a"


# ---- nccl-tests ----------------------------------------------------------------------------------

NCCL = """\
# wagma Allreduce Latency Test v1.2.3
# cores: 2
# hosts: a
# hosts: b
# versions.numpy: 2.4
#
#                                                                  in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong    late
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (%)
     1048576        262144     float     sum      -1     4.50  233.02  233.02       0    0.00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 233.017
#
"""


def test_nccl_to_the_letter() -> None:
    settings = Settings("allreduce", (8,), format="nccl", validate=True)
    found = text(settings, point(series(checks=GOOD), size=1 << 20))
    assert found == NCCL


def test_nccl_without_validation_and_with_baselines() -> None:
    settings = Settings("allreduce", (8,), format="nccl", baselines=("mpi", "gloo"))
    lines = text(settings, compared(), interrupted=True).splitlines()
    assert lines[7].endswith("late  MPI_Allreduce  speedup     gloo  speedup")
    assert lines[9].split() == [
        *("8", "2", "float", "sum", "-1", "4.50", "0.00", "0.00", "N/A", "0.00"),
        *("9.00", "2.00", "n/a", "n/a"),
    ]
    assert len(lines[9]) == len(lines[7])
    assert lines[10:] == [
        *("# Out of bounds values : N/A", "# Avg bus bandwidth    : 0.00177778"),
        *("# interrupted", "#"),
    ]


def test_nccl_counts_what_is_wrong() -> None:
    settings = Settings("allreduce", (8,), format="nccl", validate=True)
    shown = text(settings, point(series(checks=BAD)))
    assert shown.splitlines()[9].split()[8] == "3"
    assert "# Out of bounds values : 3 FAILED" in shown


def test_nccl_counts_what_is_wrong_of_a_baseline() -> None:
    settings = Settings("allreduce", (8,), format="nccl", validate=True, baselines=("mpi",))
    shown = text(settings, point(series(checks=GOOD), series(*MPI, checks=BAD)))
    assert shown.splitlines()[9].split()[8] == "3"
    assert "# Out of bounds values : 3 FAILED" in shown


def test_nccl_of_groups_and_skews() -> None:
    four = series(own=[[4000] * 4])
    settings = Settings("group-allreduce", (8,), format="nccl", group_size=2)
    row = text(settings, point(four, size=4000)).splitlines()[9].split()
    assert row[6:8] == ["1.00", "1.00"]  # 2 (2 - 1) / 2
    row = text(Settings("allreduce", (8,), format="nccl"), point(four, size=4000)).splitlines()[9]
    assert row.split()[6:8] == ["1.00", "1.50"]
    settings = Settings("skew", (8,), format="nccl")
    assert text(settings, point(amplitude=12.345e-3)).splitlines()[9].split()[-1] == "12345"
    assert text(settings, point(amplitude=123.46e-6)).splitlines()[9].split()[-1] == "123.5"


# ---- CSV -----------------------------------------------------------------------------------------


def table(shown: str) -> list[dict[str, str]]:
    lines = [line for line in shown.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(io.StringIO("\n".join(lines))))


def test_csv_has_a_line_for_each_series() -> None:
    settings = Settings("allreduce", (8,), format="csv", baselines=("mpi",))
    shown = text(settings, compared())
    assert shown.startswith(remarks(ENVIRONMENT) + ",".join(COLUMNS) + "\n")
    rows = table(shown)
    assert [row["series"] for row in rows] == [
        *("wagma in-place", "MPI_Allreduce in-place", "MPI_Allreduce two-buffers")
    ]
    first = rows[0]
    assert (first["kind"], first["size"], first["count"], first["ranks"]) == (
        *("allreduce", "8", "2", "2"),
    )
    assert (first["avg_us"], first["own_p50_us"], first["last_p50_us"]) == ("3.5", "4.5", "4.5")
    assert (first["own_p99_us"], first["amplitude_us"], first["pure_us"]) == ("5.97", "", "")
    assert (first["ratio"], rows[2]["ratio"], first["checked"]) == ("1", "2", "8")
    assert None not in first


def test_columns_of_csv_are_documented() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/benchmark-figures.md").read_text()
    parts = re.compile(r"(own|last)_\w+_us")
    for column in COLUMNS:
        assert f"`{parts.sub(lambda found: f'{found[1]}_*_us', column)}`" in text, column


def test_csv_of_posted_and_of_late_calls() -> None:
    delayed = [[False, True]] * 4
    both = point(series(**POSTED, delayed=delayed), amplitude=1e-3)
    (row,) = table(text(Settings("overlap", (8,), format="csv"), both, interrupted=True))
    assert (row["amplitude_us"], row["pure_us"], row["overlap_percent"]) == ("1000", "1.8", "0")
    assert (row["testing_us"], row["waiting_us"], row["paid_p50_us"]) == ("0.2", "0.5", "1.5")
    assert row["delayed_p50_us"] == "3.5"
    shown = text(Settings("overlap", (8,), format="csv"), interrupted=True)
    assert shown.endswith("# interrupted\n")
