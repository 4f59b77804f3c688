"""The report's reading: what a folder has, what of it cannot be used, and why."""

import json
from pathlib import Path
from typing import Any

import pytest
import report_folders as made
import traces

from wagma.report.reading import KINDS, read


def test_every_kind_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    made.everything(tmp_path)
    made.put(tmp_path, "later/merged.json", made.merged())
    made.put(tmp_path, "rows.json", made.summary())
    made.put(tmp_path, "simulated.json", made.simulated())
    made.put(tmp_path, "out/heterogeneous.json", made.heterogeneous())
    (tmp_path / "notes.txt").write_text("{")
    made.put(tmp_path, ".hidden/x.json", 1)
    made.put(tmp_path, ".x.json", 1)
    found = read(tmp_path)
    kinds = {source.path: source.kind for source in found.sources}
    assert kinds == {
        "allreduce.json": "benchmark",
        "digits.json": "training",
        "iallreduce.json": "benchmark",
        "out/heterogeneous.json": "heterogeneous cluster",
        "overlap.json": "benchmark",
        "rows.json": "summary of timelines",
        "simulated.json": "simulation",
        "skew.json": "benchmark",
        "table.json": "goals",
        "training/demo.json": "training",
        "traces/model.rank-0.json": "timeline",
        "traces/model.rank-1.json": "timeline",
    }
    assert set(kinds.values()) | {"merged timelines"} == set(KINDS)
    # What was merged from files that are there is not shown twice.
    assert [(each.path, each.why) for each in found.skipped] == [
        ("later/merged.json", "it was merged from the timelines in traces, which are shown")
    ]
    assert [trace.name for trace in found.traces] == ["traces"]


def test_what_was_merged_is_read_as_the_ranks_were(tmp_path: Path) -> None:
    made.put(tmp_path, "merged.json", made.merged())
    (trace,) = read(tmp_path).traces
    assert [(each.rank, each.size, each.handle) for each in trace.timelines] == [
        (0, 2, "model"),
        (1, 2, "model"),
    ]
    own = trace.timelines[1].events
    assert sum(event.duration_ns for event in own if event.kind == "wait") == 32_000_000
    assert trace.timelines[0].collective == trace.timelines[1].collective


def test_handles_of_one_name_stay_apart_when_merged(tmp_path: Path) -> None:
    from wagma.trace.files import parse
    from wagma.trace.merge import merge

    ranks = [
        parse(traces.content(rank, made.events(rank)[:count], collective=number), Path("x"))
        for number, count in (("a", 5), ("b", 10))
        for rank in (0, 1)
    ]
    made.put(tmp_path, "merged.json", merge(ranks))
    (trace,) = read(tmp_path).traces
    of: dict[str, list[int]] = {}
    for each in trace.timelines:
        of.setdefault(each.collective, []).append(len(each.events))
    assert sorted(of.values()) == [[5, 5], [10, 10]]


def changed(value: Any, *path: Any, to: Any) -> Any:
    """A copy in which what is at `path` is another; `KeyError`: it is left out."""
    value = json.loads(json.dumps(value))
    at = value
    for key in path[:-1]:
        at = at[key]
    if to is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return value


RANK = traces.content(0, made.events(0))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (3, "nothing that wagma makes reports of"),
        ([], "nothing that wagma makes reports of"),
        ({"runs": []}, "nothing that wagma makes reports of"),
        ([{"handle": "x"}], "nothing that wagma makes reports of"),
        (changed(made.by_size(), "schema_version", to=2), "schema has version 2, this .* reads 1"),
        (
            changed(made.by_size(), "points", 0, "series", 0, "own_us", "p50", to="fast"),
            r"\$.points\[0\].series\[0\].own_us.p50 .* benchmark.schema.json .*'fast' is not",
        ),
        (changed(made.by_size(), "ranks", to=KeyError), "'ranks' is a required property"),
        (
            changed(made.by_size(), "points", 0, "series", 0, "own_us", "p50", to=10**400),
            "too large",
        ),
        (changed(made.goals(), "table", to=[]), "its table has no rows"),
        (changed(made.goals(), "table", 0, "goal", to=KeyError), "looks like a goals.*'goal'"),
        (changed(made.simulated(), "rows", to=[]), "it has no rows"),
        (
            changed(made.simulated(), "rows", 0, "late", to=KeyError),
            "looks like a simulation.*'late'",
        ),
        (changed(made.training(), "runs", to=[]), "it has no runs"),
        (changed(made.heterogeneous(), "runs", to=[]), "it has no runs"),
        (
            changed(made.heterogeneous(), "runs", 0, "planning", to=KeyError),
            "looks like a heterogeneous cluster.*'planning'",
        ),
        (
            changed(made.training(), "runs", 0, "throughput", to=True),
            r"\$.runs\[0\].throughput .*: True is not of type .*written by another",
        ),
        (changed(made.training(), "runs", 0, "curve", "seconds", to=[1]), "as many seconds"),
        (changed(RANK, "otherData", "wagma", to=9), "has format 9, this .* reads 1"),
        (changed(RANK, "otherData", "clock", to={}), "no timeline that wagma wrote"),
        (changed(made.merged(), "otherData", "wagma-merged", to=9), "has format 9, .* reads 1"),
        (changed(made.merged(), "traceEvents", to=[]), "looks like a merged timelines, but: KeyEr"),
        (changed(made.summary(), 0, "waiting", to=None), "None is no number"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, content: Any, why: str) -> None:
    import re

    made.put(tmp_path, "x.json", content)
    found = read(tmp_path)
    assert not found.sources
    (skipped,) = found.skipped
    assert skipped.path == "x.json"
    assert re.search(why, skipped.why), skipped.why


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "broken JSON at line 1, column 1"),
        (b'{"runs": [\n1,', "broken JSON at line 2, column 3"),
        (b'{"a": NaN}', "NaN is no number of JSON"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "x.json").write_bytes(data)
    (skipped,) = read(tmp_path).skipped
    assert why in skipped.why


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").symlink_to(tmp_path / "y.json")
    (skipped,) = read(tmp_path).skipped
    assert (skipped.path, skipped.why) == ("x.json", "it cannot be read: No such file or directory")


def test_timelines_of_two_runs_in_a_folder_are_refused(tmp_path: Path) -> None:
    traces.write(tmp_path, 0, made.events(0))
    later = {"collective": "cd", "process": "900-7", "clock": {"realtime_ns": 2 * 10**18}}
    traces.write(tmp_path, 1, made.events(1), handle="other", **later)
    made.put(tmp_path, "demo.json", made.demo())
    found = read(tmp_path)
    assert [source.path for source in found.sources] == ["demo.json"]
    assert not found.traces
    (skipped,) = found.skipped
    assert "mixed runs" in skipped.why


def test_figures_of_trainings() -> None:
    from wagma.report.contents import read_training

    training = read_training("x", made.training())
    assert training.what == (
        "digits on 2 ranks, 1 of them delayed by 320 ms, 100 ms per step (emulated)"
    )
    assert training.algorithms == ("allreduce", "wagma")
    assert training.label("wagma") == "WAGMA"
    assert [run.seed for run in training.of("wagma")] == [0, 1]
    assert training.runs[0].staleness == {0: 60, 1: 30, 14: 10}
