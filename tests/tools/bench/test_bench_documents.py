"""Reports in files: the JSON document and its schema, raw samples."""

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from bench_reports import BAD, OWN, POSTED, compared, point, report, series, text
from documents import blocks

from wagma.benchmarks import raw
from wagma.benchmarks.kinds import KINDS
from wagma.benchmarks.samples import Report, Series
from wagma.benchmarks.settings import Settings
from wagma.benchmarks.views import view

# ---- JSON ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((resources.files("wagma.report") / "benchmark.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("full", [False, True])
def test_json_is_what_the_schema_says(
    kind: str, full: bool, validator: jsonschema.Draft202012Validator
) -> None:
    settings = Settings(kind, (8,), format="json", full=full, quorum=1, skews=(0.0, 1e-3))
    posted = series(**POSTED, delayed=False, checks=BAD)
    shown = text(settings, compared(), point(posted, amplitude=1e-3), interrupted=True)
    document = json.loads(shown)
    validator.validate(document)
    assert document["interrupted"] is True
    assert document["settings"]["kind"] == kind
    first, second = document["points"]
    assert first["series"][0]["own_us"]["p50"] == 4.5
    assert second["series"][0]["first_wrong"] == "rank 1, result 2"
    assert second["amplitude_us"] == 1000.0
    assert ("samples" in second["series"][0]) == full
    if full:
        samples = second["series"][0]["samples"]
        assert samples["ended"] == OWN
        assert samples["late"] == [[False, False]] * 4
        assert set(samples) == {*POSTED, "began", "ended", "late", "delayed"}


def test_json_of_a_run_without_results(validator: jsonschema.Draft202012Validator) -> None:
    document = json.loads(text(Settings("allreduce", (8,), format="json"), interrupted=True))
    validator.validate(document)
    assert document["points"] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("ranks",), 0),
        (("interrupted",), None),
        (("settings", "kind"), "barrier"),
        (("points", 0, "size"), -8),
        (("points", 0, "series"), []),
        (("points", 0, "series", 0, "own_us", "p50"), "4.5"),
        (("points", 0, "series", 0, "late_percent"), 101),
        (("points", 0, "series", 0, "something"), 1),
    ],
)
def test_the_schema_refuses(
    path: tuple[Any, ...], value: Any, validator: jsonschema.Draft202012Validator
) -> None:
    document = json.loads(text(Settings("allreduce", (8,), format="json"), point()))
    validator.validate(document)
    *way, last = path
    place = document
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)


def test_every_setting_is_in_the_schema(validator: jsonschema.Draft202012Validator) -> None:
    known = validator.schema["$defs"]["settings"]["properties"]
    assert list(known) == list(Settings.__dataclass_fields__)


# ---- raw samples ---------------------------------------------------------------------------------


def same(a: Series, b: Series) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in Series.__dataclass_fields__
    )


def test_samples_come_back(tmp_path: Path) -> None:
    settings = Settings("iallreduce", (8, 16), percentiles=(50.0,), baselines=("mpi",))
    posted = series(**POSTED, checks=BAD, began=[[0, 7]])
    written = report(settings, compared(), point(posted, size=16, amplitude=1e-3))
    path = tmp_path / "samples"  # the name is left as it is
    raw.save(path, written)
    read: Report = raw.load(path)
    assert (read.settings, read.environment, read.ranks) == (settings, {"cores": 2}, 2)
    assert read.interrupted is False
    for old, new in zip(written.points, read.points, strict=True):
        assert (old.size, old.count, old.arrival, old.amplitude) == (
            *(new.size, new.count, new.arrival, new.amplitude),
        )
        assert all(map(same, old.series, new.series))
    assert read.points[0].series[0].posting is None
    assert view(settings).row(read.points[1]) == view(settings).row(written.points[1])


def test_the_page_reads_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw.save(tmp_path / "samples.npz", report(Settings("allreduce", (8,)), compared()))
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("benchmark-figures.md", "python")
    exec(code, {})
    printed = capsys.readouterr().out
    assert re.match(r"8 wagma in-place \d", printed)
    assert len(printed.splitlines()) == len(compared().series)


def test_samples_need_no_wagma_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    raw.save(path, report(Settings("allreduce", (8,)), compared()))
    with np.load(path, allow_pickle=False) as arrays:
        assert (arrays["0/0/ended"] - arrays["0/0/began"]).tolist() == OWN
        described = json.loads(str(arrays["report"]))
    assert described["points"][0]["series"][1]["name"] == "MPI_Allreduce in-place"
    assert described["settings"]["kind"] == "allreduce"


def test_what_is_no_file_of_samples(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("8 3.5")
    with pytest.raises(ValueError, match="pickle"):
        raw.load(tmp_path / "text")
