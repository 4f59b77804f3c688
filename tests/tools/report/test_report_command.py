"""`python -m wagma report`: its options, what it writes, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
import report_folders as made

from wagma.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made.put(tmp_path, "results/skew.json", made.by_delay())
    return tmp_path / "results"


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["report", *words])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_the_page_and_its_pictures_are_beside_the_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "<title>wagma: results</title>" in page
    assert [path.name for path in (folder / "report-png").iterdir()] == ["delay-1.png"]
    size = len(page.encode()) / 1e3
    said = capsys.readouterr()
    assert said.out == (
        f"{folder}/report.html: {size:.0f} kB, 1 file, 1 picture in {folder}/report-png\n"
    )
    assert said.err == ""
    # What it wrote is nothing that it reads.
    assert main(["report", str(folder), "--strict", "--no-png"]) == 0
    assert (folder / "report.html").read_text() == page


def test_options(folder: Path, tmp_path: Path) -> None:
    out, png = tmp_path / "new/page.html", tmp_path / "pictures"
    words = ["--out", str(out), "--png", str(png), "--title", "T <1>"]
    assert main(["report", str(folder), *words]) == 0
    assert "<h1>T &lt;1&gt;</h1>" in out.read_text()
    assert (png / "delay-1.png").exists()
    other = tmp_path / "other.html"
    assert main(["report", str(folder), "--out", str(other), "--no-png"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("new", "other.html", "pictures", "results")
    ]
    assert [path.name for path in folder.iterdir()] == ["skew.json"]


def test_what_cannot_be_used_is_told_and_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.json").write_text("{")
    made.put(folder, "b.json", {"something": "else"})
    assert main(["report", str(folder)]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "report: a.json is left out: broken JSON at line 1, column 2" in lines[0]
    assert "report: b.json is left out: it is nothing that wagma" in lines[1]
    (folder / "report.html").unlink()
    said = refused(capsys, str(folder), "--strict")
    assert "a.json is left out" in said
    assert "b.json is left out" in said
    assert not (folder / "report.html").exists()


def test_folders_that_cannot_be_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{tmp_path}/none does not exist" in refused(capsys, str(tmp_path / "none"))
    file = made.put(tmp_path, "skew.json", made.by_delay())
    assert "is a file: name the folder" in refused(capsys, str(file))
    file.write_text("{}")
    said = refused(capsys, str(tmp_path))
    assert "skew.json is left out" in said
    assert "has nothing to report; looked for .json files of" in said
    for words in ("bench KIND --format json", "bench table", "demo --json", "WAGMA_TRACE=DIR"):
        assert words in said
    assert not (tmp_path / "report.html").exists()


def test_what_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "skew.json"
    said = refused(capsys, str(folder), "--out", str(file / "x.html"), "--no-png")
    assert "x.html cannot be written: " in said or "skew.json cannot be written: " in said
    said = refused(capsys, str(folder), "--out", str(folder / "t.json"), "--no-png")
    assert "argument --out" in said
    assert "t.json is no name of a page" in said
    said = refused(capsys, str(folder), "--out", str(folder), "--no-png")
    assert f"{folder} cannot be written: Is a directory" in said
    said = refused(capsys, str(folder), "--png", str(file))
    assert f"{file} cannot be written: File exists" in said
    assert "not allowed with" in refused(capsys, str(folder), "--no-png", "--png", "x")


@pytest.mark.parametrize("package", ["jinja2", "jsonschema", "matplotlib"])
def test_what_is_not_installed_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr(
        "wagma.launch.packages.find_spec", lambda name: None if name == package else 1
    )
    said = refused(capsys, str(folder))
    assert f"{package} is not installed" in said
    assert f"python -m pip install {package}" in said


@pytest.mark.parametrize("variable", ["PMI_RANK", "OMPI_COMM_WORLD_RANK"])
def test_one_rank_writes(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, "1")
    assert main(["report", str(folder)]) == 0
    assert main(["report", str(tmp_path / "none")]) == 0
    assert [path.name for path in folder.iterdir()] == ["skew.json"]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv(variable, "0")
    assert main(["report", str(folder), "--no-png"]) == 0
    assert (folder / "report.html").exists()


@pytest.mark.long
def test_it_runs_without_mpi_and_torch(folder: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules |= {'mpi4py.MPI': None, 'torch': None}\n"
        "from wagma.cli import main\n"
        "sys.exit(main(['report', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder.parent,
        # Where this process knows the fonts, which take a second to be found.
        env={**os.environ, "MPLCONFIGDIR": matplotlib.get_cachedir() or str(folder)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert (folder / "report.html").exists()


def test_its_files_are_installed_with_it() -> None:
    setup = (Path(__file__).resolve().parents[3] / "setup.py").read_text()
    assert '"wagma.report": ["*.html", "*.css", "*.json"]' in setup
