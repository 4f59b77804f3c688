"""The report's page: every section where its data are, and nothing from outside."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import report_folders as made
import traces
from report_folders import Json

from wagma.benchmarks.heterogeneous.table import markdown
from wagma.report.formats import clean
from wagma.report.page import Report, report
from wagma.report.reading import read
from wagma.report.sections import sections
from wagma.report.sections.window import window

pytestmark = pytest.mark.long

MAIL = 2_000_000  # bytes
SECTIONS = (
    *("throughput", "accuracy", "staleness", "waiting", "timeline", "latency", "ratios"),
    *("delays", "overlap", "goals", "environment", "files"),
)


class Page(HTMLParser):
    """Checks that elements end in the order in which they began, and keeps what tests ask for."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag == "small":
            self.tables[-1][-1][-1] += " "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag, (self.open, tag, self.getpos())
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open and self.open[-1] in ("th", "td", "small"):
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, head: str, *begins: str) -> list[str]:
        """Return the row that begins so, in the first table that has this head."""
        table = next(rows for rows in self.tables if head in rows[0])
        return next(row for row in table if tuple(row[: len(begins)]) == begins)


def report_of(
    folder: Path, title: str = "A title", *, pictures: bool = False
) -> tuple[Page, Report]:
    """`pictures`: also the plots as PNG, which take a third of the time."""
    shown = report(read(folder), title, pictures=pictures)
    return Page(shown.html), shown


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Report]:
    return report_of(made.everything(tmp_path_factory.mktemp("whole")), pictures=True)


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


def test_the_table_of_a_heterogeneous_cluster_is_the_printed_one(tmp_path: Path) -> None:
    made.put(tmp_path, "heterogeneous.json", {**made.heterogeneous(), "interrupted": True})
    page, _ = report_of(tmp_path)
    lines = markdown(made.heterogeneous()).splitlines()
    printed = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [[cell.strip() for cell in row] for row in page.tables[0]] == [printed[0], *printed[2:]]
    text = " ".join(page.text)
    assert "cluster B: 2 nodes of 16, chosen evenly" in text
    assert "Planning: replan()" in text and "It was interrupted" in text


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


# ---- figures -------------------------------------------------------------------------------------


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
