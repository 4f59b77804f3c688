"""Files that wagma writes where others may plant links."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from wagma.collectives import Handle, Segment, tuning
from wagma.launch import files
from wagma.launch.files import check_writable, write_file

ROOT = Path(__file__).resolve().parents[2]
# What opens files to write: names that nobody else knows, in folders of this user's own; or files
# that are no links, which are appended to, locked or brought to the disk.
PRIVATE = {
    "wagma/launch/files.py",
    "wagma/checkpoint/files.py",
    "wagma/checkpoint/lock.py",
    "wagma/logs/console.py",
    "wagma/logs/lines.py",
    "benchmarks/checkpoint_cost.py",
    "benchmarks/gpu.py",
    "benchmarks/start.py",
    "benchmarks/table/launch.py",
    "benchmarks/table/rank.py",
}
WRITES = re.compile(
    r"\.write_(text|bytes)\(|open\([^)]*[\"'][rwax]*[wax][bt+]*[\"']|NamedTemporaryFile|mkstemp|"
    r"savefig\((?!content|vector|pixels)|\bos\.open\("
)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A link of another user, and this user's file that it points at."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(files, "_ROOT", 4712)
    victim, link = tmp_path / "victim", tmp_path / "results.json"
    victim.write_text("precious")
    link.symlink_to(victim)
    return link, victim


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_file(path, "ours"),
        lambda path: tuning.write(path, "here", tuning.Schedule()),
    ],
)
def test_anothers_link_is_replaced(
    planted: tuple[Path, Path], write: Callable[[Path], None]
) -> None:
    link, victim = planted
    check_writable(link)
    assert link.is_symlink()
    write(link)
    assert victim.read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_text() != "precious"
    assert sorted(path.name for path in link.parent.iterdir()) == ["results.json", "victim"]


def test_ones_own_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    for content in ("one", "two"):
        write_file(link, content)
        assert link.is_symlink()
        assert (tmp_path / "there/file").read_text() == content
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    """What is new has what the umask leaves."""
    path = tmp_path / "file"
    for mode in (0o600, 0o640, 0o664):
        path.write_text("old")
        path.chmod(mode)
        write_file(path, "new")
        assert path.read_text() == "new"
        assert path.stat().st_mode & 0o7777 == mode
    write_file(tmp_path / "new", "")
    (tmp_path / "made").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "made").stat().st_mode


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    null = Path("/dev/null").stat().st_rdev
    write_file(Path("/dev/null"), "gone")
    check_writable(Path("/dev/null"))
    assert Path("/dev/null").stat().st_rdev == null
    os.mkfifo(tmp_path / "pipe")
    reader = threading.Thread(target=lambda: came.append((tmp_path / "pipe").read_text()))
    came: list[str] = []
    reader.start()
    write_file(tmp_path / "pipe", "through")
    reader.join()
    assert came == ["through"]
    said = subprocess.run(
        [
            *(sys.executable, "-c"),
            "from pathlib import Path\nfrom wagma.launch.files import write_file\n"
            "write_file(Path('/dev/stdout'), 'said')",
        ],
        capture_output=True,
        check=True,
    )
    assert said.stdout == b"said"


def test_a_file_that_cannot_be_written_stays(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "missing/file", "x")
    assert list(tmp_path.iterdir()) == []


def test_all_files_are_written_in_one_way() -> None:
    for folder in ("wagma", "benchmarks", "collectives"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name not in PRIVATE:
                found = WRITES.search(path.read_text())
                assert found is None, f"{name}: {found}: use wagma.launch.files.write_file"


def test_timelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the name nor what earlier versions called the part that is being written."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("model.rank-0.json", "model.rank-0.json.part"):
        (traces / name).symlink_to(victim)
    os.utime(victim, ns=(0, 0))
    monkeypatch.setenv("WAGMA_TRACE", str(traces))
    x = np.ones(4, np.float32)
    with Handle(Segment.create({"size": 1, "count": 4}), 0, x, name="model") as handle:
        handle.allreduce(x)
    assert victim.read_text() == "precious"
    assert victim.stat().st_mtime_ns == 0
    written = [path for path in traces.iterdir() if not path.is_symlink()]
    assert len(written) == 1
    assert '"traceEvents"' in written[0].read_text()
