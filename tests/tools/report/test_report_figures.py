"""The report's figures are those of the files."""

from pathlib import Path

import pytest
import report_folders as made
import traces
from report_pages import Page, report_of

from wagma.benchmarks.heterogeneous.table import markdown
from wagma.report.page import Report
from wagma.report.reading import read
from wagma.report.sections import sections
from wagma.report.sections.window import window

pytestmark = pytest.mark.long


def test_latencies_and_ratios(whole: tuple[Page, Report]) -> None:
    page, _ = whole
    assert page.row("wagma in-place", "2 KiB") == [
        "2 KiB",
        "9.00 us 6.60 us \N{EN DASH} 11.4 us",
        "19.0 us 19.0 us \N{EN DASH} 19.0 us",
        "18.0 us 18.0 us \N{EN DASH} 18.0 us",
        "100.0%",
    ]
    ratios = next(
        rows
        for rows in page.tables
        if rows[0] == ["array", *(n for n in rows[0][1:])]
        and "wagma in-place" not in rows[0]
        and "MPI_Allreduce in-place" in rows[0]
    )
    assert ratios[1] == ["1 KiB", "2.11\N{MULTIPLICATION SIGN}", "2.00\N{MULTIPLICATION SIGN}"]


def test_delays_and_overlap(whole: tuple[Page, Report]) -> None:
    page, _ = whole
    rows = next(rows for rows in page.tables if rows[0][0] == "late by")
    assert [row[0] for row in rows[1:]] == ["0", "1.00 ms", "10.0 ms"]
    assert rows[3][1:] == [
        "4.50 us 3.30 us \N{EN DASH} 5.70 us",
        "10.0 ms, 2,224\N{MULTIPLICATION SIGN} 10.0 ms \N{EN DASH} 10.0 ms",
        "50.0%",
    ]
    paid = page.row("paid, median", "MPI_Iallreduce in-place")
    assert paid[1:] == ["6.00 us", "6.00 us", "8.50 us"]
    hidden = next(rows for rows in page.tables if rows[0] == ["array", "wagma in-place"])
    assert hidden[1] == ["8 B", "0.0%"]


def test_trainings(whole: tuple[Page, Report]) -> None:
    page, _ = whole
    times = "\N{MULTIPLICATION SIGN}"
    whole_tables = [rows for rows in page.tables if "of ideal" in rows[0]]
    assert whole_tables[1][2] == ["WAGMA", "1,600", f"1.60{times}", "80%"]
    assert whole_tables[0][2] == ["WAGMA", "1,650 1,600 \N{EN DASH} 1,700", f"1.50{times}", "82%"]
    assert page.row("time to 75.0%", "WAGMA") == [
        *("WAGMA", "2", "101.0 ms"),
        "202.0 ms",
        "2.00 s 1.50 s \N{EN DASH} 2.50 s",
        *("25.0%", "0.40"),
        "0.0123",
        "90.0%",
        "3.25 s 1 of 2 seeds",
    ]
    assert page.row("age, versions", "0")[1:] == ["60.0%", "60.0%"]
    assert page.row("age, versions", "12+")[1:] == ["10.0%", "10.0%"]
    waited = [rows for rows in page.tables if rows[0] == ["rank", "AllreduceSGD", "WAGMA"]]
    assert waited[0][2] == ["1", "2.50 s", "2.50 s"]
    assert waited[1][1] == ["0", "1.00 s", "1.00 s"]
    curves = [rows for rows in page.tables if rows[0][0] == "algorithm" and "1 s" in rows[0]]
    assert curves[0][1] == ["AllreduceSGD", "\N{EN DASH}", "30.0%", "30.0%", "80.0%"]


def test_a_training_whose_bound_nobody_knows(tmp_path: Path) -> None:
    made.put(tmp_path, "x.json", made.unbounded())
    page, _ = report_of(tmp_path)
    assert page.row("of ideal", "WAGMA")[3] == "82%"
    assert page.row("of ideal", "Own")[3] == "\N{EN DASH}"


def test_a_measure_that_is_no_share(tmp_path: Path) -> None:
    made.put(tmp_path, "x.json", made.training(in_percent=False))
    page, _ = report_of(tmp_path)
    assert page.row("return", "WAGMA")[8] == "0.9"
    assert "time to 0.75" in page.row("return", "algorithm")


def test_the_window_is_from_one_version_of_all_ranks_to_the_next(
    whole: tuple[Page, Report], tmp_path: Path
) -> None:
    made.traces(tmp_path)
    (trace,) = read(tmp_path).traces
    shown = window(trace.timelines)
    assert shown is not None
    assert (shown.first, shown.last, shown.length_ms) == (4, 7, 40.0)
    assert shown.syncs == [(7, 40.0)]
    one = shown.lanes[1]
    assert one.spans["waiting"][1] == pytest.approx((15.0, 19.0))
    assert one.late_ms == pytest.approx([20.0])
    page, _ = whole
    assert page.row("late calls", "1") == ["1", "20.0 ms", "16.0 ms", "2.00 ms", "1"]
    assert page.row("came last", "1")[1:7] == [
        "8",
        "1 12.5%",
        "0.075 s",
        "46.7%",
        "42.7% for quorum",
        "5.3%",
    ]


def test_a_window_without_versions_of_all_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [
            traces.call(1000.0 * version, 500.0, version, group=[0, 1]) for version in range(100)
        ]
        traces.write(tmp_path, rank, events)
    (trace,) = read(tmp_path).traces
    shown = window(trace.timelines)
    assert shown is not None
    assert (shown.first, shown.last) == (38, 61)
    assert shown.length_ms == pytest.approx(23.5)


def test_timelines_without_a_call_have_no_picture(tmp_path: Path) -> None:
    traces.write(tmp_path, 0, [traces.event("arrival", 1.0, 0)])
    assert {section.name for section in sections(read(tmp_path))} == {"files"}


def test_the_table_of_a_heterogeneous_cluster_is_the_printed_one(tmp_path: Path) -> None:
    made.put(tmp_path, "heterogeneous.json", {**made.heterogeneous(), "interrupted": True})
    page, _ = report_of(tmp_path)
    lines = markdown(made.heterogeneous()).splitlines()
    printed = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [[cell.strip() for cell in row] for row in page.tables[0]] == [printed[0], *printed[2:]]
    text = " ".join(page.text)
    assert "cluster B: 2 nodes of 16, chosen evenly" in text
    assert "Planning: replan()" in text and "It was interrupted" in text
