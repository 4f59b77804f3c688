"""The table that wagma.benchmarks.ksync prints: it is that of the page."""

from pathlib import Path

from wagma.benchmarks.ksync import HEADER, row

PAGE = Path(__file__).resolve().parents[3] / "docs/reproduction-ksync.md"


def test_the_page_has_the_columns_that_are_printed() -> None:
    assert f"| {' | '.join(HEADER)} |" in PAGE.read_text()


def test_a_row() -> None:
    found = {
        "serverless": {"seconds": 0.0274, "staleness": 6.96, "busy": 0.981},
        "server": {"seconds": 0.1304, "staleness": 7.014, "busy": 1.0},
    }
    line = row("k-async", 1, 0.1, 7.0, found)
    cells = "k-async | 1 | 100 | 27.4 (0.27x) | 130 (1.30x) | 7.00 | 6.96 | 7.01 | 98.1% | 100.0%"
    assert line == f"| {cells} |"
    del found["serverless"]
    line = row("k-batch-async", 1, 0.025, 7.0, found)
    cells = "k-batch-async | 1 | 25.0 | - | 130 (5.22x) | 7.00 | - | 7.01 | - | 100.0%"
    assert line == f"| {cells} |"
