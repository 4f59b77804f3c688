"""The report's page: every section where its data are, and nothing from outside."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_folders as made
import traces
from report_folders import Json
from report_pages import Page, report_of

from wagma.report.formats import clean
from wagma.report.page import Report
from wagma.report.reading import read
from wagma.report.sections import sections

pytestmark = pytest.mark.long

MAIL = 2_000_000  # bytes
SECTIONS = (
    *("throughput", "accuracy", "staleness", "waiting", "timeline", "latency", "ratios"),
    *("delays", "overlap", "goals", "environment", "files"),
)


def test_every_section_is_there(whole: tuple[Page, Report]) -> None:
    page, shown = whole
    assert [each["id"] for each in page.all("section")] == list(SECTIONS)
    assert {f"#{name}" for name in SECTIONS} <= {each["href"] for each in page.all("a")}
    assert set(shown.plots) == {
        *("throughput-1", "throughput-2", "accuracy-1", "accuracy-2", "staleness-1", "waiting-1"),
        *("waiting-2", "timeline-1", "shares-1", "latency-1", "ratio-1", "delay-1", "hidden-1"),
        "paid-1",
    }
    assert all(plot.png and plot.png.startswith(b"\x89PNG") for plot in shown.plots.values())
    palette = 3  # the colour type, in the header of a PNG: a third of the bytes of true colour
    assert {plot.png[25] for plot in shown.plots.values() if plot.png} == {palette}


PARTS: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "benchmark": (made.by_size, {"latency", "ratios", "environment"}),
    "skew": (made.by_delay, {"delays", "environment"}),
    "iallreduce": (made.hidden, {"overlap", "environment"}),
    "overlap": (made.paid, {"overlap", "environment"}),
    "goals": (made.goals, {"goals", "environment"}),
    "simulation": (made.simulated, {"simulated"}),
    "one seed": (made.demo, {"throughput", "accuracy", "waiting", "environment"}),
    "training": (made.training, {"throughput", "accuracy", "staleness", "waiting", "environment"}),
    "heterogeneous": (made.heterogeneous, {"divisions", "environment"}),
    "merged": (made.merged, {"timeline"}),
    "summary": (made.summary, {"timeline"}),
}


@pytest.mark.parametrize("name", PARTS)
def test_sections_are_only_where_there_is_something(tmp_path: Path, name: str) -> None:
    make, expected = PARTS[name]
    made.put(tmp_path, "x.json", make())
    found = read(tmp_path)
    assert not found.skipped
    shown = sections(found)
    assert {section.name for section in shown} == expected | {"files"}


# ---- nothing from outside, and nothing from files but text ---------------------------------------


def test_nothing_is_loaded_and_nothing_runs(whole: tuple[Page, Report]) -> None:
    page, shown = whole
    names = {tag for tag, _ in page.elements}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href", "srcset", "action", "poster"):
                assert (value or "").startswith(("#", "data:image/png;base64,")), (tag, value)
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", shown.html)
    assert "://" not in outside
    assert "@import" not in outside
    assert all(url.startswith("#") for url in re.findall(r"url\(([^)]*)\)", outside))
    assert "default-src 'none'" in shown.html


def test_it_is_light(whole: tuple[Page, Report]) -> None:
    _, shown = whole
    assert len(shown.html.encode()) < MAIL / 4
    assert sum(len(plot.png or b"") for plot in shown.plots.values()) < MAIL / 4


def test_ids_are_of_one_element_and_lead_somewhere(whole: tuple[Page, Report]) -> None:
    page, shown = whole
    ids = [each["id"] for _, each in page.elements if "id" in each]
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:xlink:href|href)="#([^"]*)"|url\(#([^)]*)\)', shown.html)
    assert {a or b for a, b in used} <= set(ids)
    assert used


def test_who_does_not_see_is_told(whole: tuple[Page, Report]) -> None:
    page, shown = whole
    pictures = [each for each in page.all("svg") if each.get("role") == "img"]
    assert len(pictures) == len(shown.plots)
    ids = {each["id"] for _, each in page.elements if "id" in each}
    assert all(each["aria-labelledby"] in ids for each in pictures)
    assert "AllreduceSGD 1,100, WAGMA 1,650</title>" in shown.html
    assert page.all("html") == [{"lang": "en"}]
    for table in page.tables:
        assert len({len(row) for row in table}) == 1, table[:2]
    assert len(page.all("caption")) == len(page.tables)
    assert {each.get("scope") for each in page.all("th")} == {"row", "col"}


HOSTILE = (
    "\N{CJK UNIFIED IDEOGRAPH-4E2D}<script>alert('$x^2$')</script>\"'>&amp;</style></svg>]]>"
    "\x00\ud800$\\frac{"
)


FORMULA = r"$\frac{$"


def strange(value: Any) -> Any:
    """All texts that files may choose, as somebody would who means harm."""
    if isinstance(value, dict):
        return {key: strange(each) for key, each in value.items()}
    if isinstance(value, list):
        return [strange(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


def test_texts_of_files_stay_texts(tmp_path: Path) -> None:
    hostile = made.by_size()
    for point in hostile["points"]:
        for each in point["series"][1:]:
            each["name"] += HOSTILE
    hostile["environment"] = strange(hostile["environment"]) | {
        "transport": "shm",
        HOSTILE: [HOSTILE],
    }
    made.put(tmp_path, "a.json", hostile)
    training = made.training()
    for run in training["runs"]:
        run |= {"algorithm": run["algorithm"] + HOSTILE, "label": run["label"] + HOSTILE}
    for run in training["runs"][2:]:
        run["label"] = FORMULA
    training["imbalance"] = HOSTILE
    training["measures"]["name"] = HOSTILE
    training["environment"] = strange(training["environment"]) | {
        "ranks": 2,
        "transport": "shm",
        "command": HOSTILE,
    }
    made.put(tmp_path, "b.json", training)
    rows = made.goals()
    rows["table"] = strange(rows["table"])
    made.put(tmp_path, "c.json", rows)
    for rank in (0, 1):
        traces.write(tmp_path, rank, made.events(rank))
    made.put(tmp_path, "rows.json", [row | {"handle": HOSTILE} for row in made.summary()])
    name = "<img src=x onerror=alert(1)>.json"
    made.put(tmp_path, name, {HOSTILE: 1})
    found = read(tmp_path)
    assert [each.path for each in found.skipped] == [name]
    page, shown = report_of(tmp_path, title=clean(HOSTILE), pictures=True)
    assert clean(HOSTILE).count("\N{REPLACEMENT CHARACTER}") == 2
    test_nothing_is_loaded_and_nothing_runs((page, shown))
    # What is shown is what the files say, but for what text cannot have.
    text = "".join(page.text)
    assert text.count(clean(HOSTILE)) > 20
    assert name in text
    # In the picture, too, a name is no formula.
    assert f">{FORMULA}</text>" in shown.html
    assert page.all("img") == []


# ---- the top of the page -------------------------------------------------------------------------


def test_warnings_and_facts_stand_at_the_top(whole: tuple[Page, Report]) -> None:
    page, shown = whole
    text = "".join(page.text)
    assert text.count(made.WARNING) == 1
    top = shown.html[: shown.html.index("<nav")]
    assert made.WARNING in top
    facts = re.findall(r'<li><a href="#(\w+)">([^<]*)</a>', top)
    times = "\N{MULTIPLICATION SIGN}"
    assert facts == [
        ("throughput", f"1.50{times}"),
        ("throughput", f"1.60{times}"),
        ("delays", f"2,224{times}"),
        ("ratios", f"2.00{times} to 2.00{times}"),
    ]
    assert "with up to 100.0% late contributions" in top


def test_wrong_results_and_interrupted_runs_are_told(tmp_path: Path) -> None:
    value = made.by_size()
    value["interrupted"] = True
    value["points"][0]["series"][1]["wrong"] = 3
    made.put(tmp_path, "x.json", value)
    page, _ = report_of(tmp_path)
    text = "".join(page.text)
    assert "Wrong results: 3." in text
    assert "The run was interrupted" in text


def test_what_was_skipped_and_the_commands_are_in_the_page(tmp_path: Path) -> None:
    value = made.by_size()
    value["environment"]["command"] = "mpiexec -n 2 python -m wagma bench allreduce"
    made.put(tmp_path, "x.json", value)
    (tmp_path / "y.json").write_text("{")
    page, _ = report_of(tmp_path)
    assert page.row("command line", "x.json")[1] == value["environment"]["command"]
    assert "broken JSON" in page.row("why", "y.json")[1]


def test_environments_that_differ_are_told_apart(tmp_path: Path) -> None:
    one, other = made.by_size(), made.by_delay()
    one["environment"] = {"cores": 2, "mpi": {"library": "MPICH"}, "time": "12:00"}
    other["environment"] = {"cores": 2, "mpi": {"library": "Open MPI"}}
    made.put(tmp_path, "a.json", one)
    made.put(tmp_path, "b.json", other)
    page, _ = report_of(tmp_path)
    assert page.row("value", "cores") == ["cores", "2"]
    assert page.row("mpi.library", "a.json") == ["a.json", "MPICH", "12:00"]
    assert page.row("mpi.library", "b.json") == ["b.json", "Open MPI", "\N{EN DASH}"]


# ---- bytes ---------------------------------------------------------------------------------------


def test_the_same_files_give_the_same_bytes(tmp_path: Path, whole: tuple[Page, Report]) -> None:
    import matplotlib as mpl

    _, first = whole
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": None}):
        _, second = report_of(made.everything(tmp_path / "elsewhere"), pictures=True)
    assert second.html == first.html
    assert second.plots == first.plots
    assert str(tmp_path) not in second.html


def test_a_large_timeline_stays_light(tmp_path: Path) -> None:
    def busy() -> list[Json]:
        return [
            each
            for version in range(24)
            for each in (
                *(
                    traces.span("reduce", 1000.0 * version + 2 * n, 1, version, slice=n)
                    for n in range(60)
                ),
                traces.call(1000.0 * version, 900, version),
            )
        ]

    for rank in range(16):
        traces.write(tmp_path, rank, busy(), size=16)
    page, shown = report_of(tmp_path)
    assert len(shown.html.encode()) < MAIL / 4
    (picture,) = page.all("img")
    assert picture["src"] is not None
    assert picture["src"].startswith("data:image/png;base64,")
    assert "16 ranks" in (picture["alt"] or "")
    # No other plot was asked for as a picture.
    assert [name for name, plot in shown.plots.items() if plot.png] == ["timeline-1"]
