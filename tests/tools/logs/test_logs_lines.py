"""LineFile, whose disk may fail; summaries of known figures."""

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from wagma.logs.lines import LineFile, rank_file
from wagma.logs.summary import own_figures, summarize, table


class Disk:
    """Stand in for os.write: it takes so many bytes, and then fails."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.piece = 7  # bytes of a write, which is short
        self.write = os.write

    def __call__(self, descriptor: int, content: bytes) -> int:
        if not self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.write(descriptor, content[: min(self.space, self.piece)])
        self.space -= taken
        return taken


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(20)
    monkeypatch.setattr(os, "write", found)
    return found


def test_a_full_disk(tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    file = LineFile(path)
    numbers = [f"line {number}" for number in range(10)]
    for line in numbers:
        file.add(line)
    assert caplog.text.count("No space left on device") == 1
    assert path.stat().st_size == 20
    disk.space = 10**6
    file.close()
    assert path.read_text().splitlines() == numbers
    assert len(caplog.records) == 1


def test_what_does_not_fit_into_memory_is_counted(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.space = 0
    file = LineFile(tmp_path / "file", flush_seconds=3600.0)
    line = "x" * 2**16
    for _ in range(100):
        file.add(line)
    disk.piece = disk.space = 10**9
    disk.write = lambda _, content: len(content)
    file.flush()
    file.close()
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    kept = (1 << 20) // len(line)
    assert f"{100 - kept} lines are missing" in caplog.text


def test_many_lines_are_written_before_their_time(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "file", flush_seconds=3600.0)
    for number in range(100_000):
        file.add(f"line {number}")
    file.close()
    found = (tmp_path / "file").read_text().splitlines()
    assert found == [f"line {number}" for number in range(100_000)]


def test_a_torn_line_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("whole\ntor")
    for line in ("one", "two"):
        file = LineFile(path)
        file.add(line)
        file.close()
    assert path.read_text() == "whole\ntor\none\ntwo\n"


def test_a_forked_process_leaves_what_its_parent_has(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "file", flush_seconds=3600.0)
    file.add("parent")
    child = os.fork()
    if child == 0:
        file.add("child")
        file.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    file.close()
    assert (tmp_path / "file").read_text() == "child\nparent\n"


def test_names_of_files() -> None:
    assert rank_file(Path("logs"), 3, "log") == Path("logs/rank-00003.log")


# ---- summaries -----------------------------------------------------------------------------------
def figures(waited: list[float]) -> list[dict[str, Any]]:
    return [
        own_figures({"steps": 10 + r, "late_share": r / 8, "waited_seconds": w}, 30, 2.0)
        for r, w in enumerate(waited)
    ]


def test_summary_of_known_figures() -> None:
    found = summarize(figures([0.5, 3.0, 1.0, 0.25]))
    assert found["steps"] == {"min": 10, "median": 11.5, "max": 13, "ranks": [10, 11, 12, 13]}
    assert found["versions_per_second"]["ranks"] == [15.0] * 4
    assert found["late_share"]["ranks"] == [0, 0.125, 0.25, 0.375]
    waited = found["waited_seconds"]
    assert (waited["min"], waited["median"], waited["max"]) == (0.25, 0.75, 3.0)
    first, head, *rows, late = table(found, 30).splitlines()
    assert first == "4 ranks at version 30"
    assert head.split() == ["min", "median", "max"]
    assert [row.split() for row in rows] == [
        ["steps", "10", "11.5", "13", "rank", "3"],
        ["versions/s", "15", "15", "15"],
        ["late", "share", "0.0%", "18.8%", "37.5%", "rank", "3"],
        ["waited", "250", "ms", "750", "ms", "3.00", "s", "rank", "1"],
    ]
    assert late == "  late: rank 0 0.0%, rank 1 12.5%, rank 2 25.0%, rank 3 37.5%"


def test_a_summary_names_few_of_many_ranks() -> None:
    found = summarize([own_figures({"late_share": (r % 32) / 100}, 0, 0.0) for r in range(64)])
    late = table(found, 0).splitlines()[-1]
    assert late.count("rank ") == 16
    assert "rank 31 31.0%" in late
    assert "rank 63 31.0%" in late
    assert "rank 0 " not in late
    assert len(late) < 300
