"""Timelines of ranks: read, aligned, merged and summed up."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from traces import call, content, event, span, write

from wagma.cli import main
from wagma.trace.clocks import align
from wagma.trace.files import Timeline, TraceError, check_one_run, find, parse, read
from wagma.trace.merge import merge
from wagma.trace.summary import summarize, table

# The Trace Event Format, as far as viewers need it.
NUMBER, TEXT = {"type": "number"}, {"type": "string"}
EVENT = {
    "type": "object",
    "required": ["ph", "pid", "tid", "name"],
    "properties": {"pid": {"type": "integer"}, "tid": {"type": "integer"}, "name": TEXT},
    "oneOf": [
        {
            "properties": {"ph": {"const": "X"}, "ts": NUMBER, "dur": {**NUMBER, "minimum": 0}},
            "required": ["ts", "dur", "cat", "args"],
        },
        {
            "properties": {"ph": {"const": "i"}, "ts": NUMBER, "s": {"enum": ["t", "p", "g"]}},
            "required": ["ts", "s", "cat", "args"],
        },
        {"properties": {"ph": {"const": "M"}}, "required": ["args"]},
    ],
}
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {"traceEvents": {"type": "array", "items": EVENT}},
}
FAR = {"boot": "other", "realtime_ns": 10**18 + 4_000_000}


def timeline(rank: int, events: list[dict[str, Any]], **changes: Any) -> Timeline:
    return parse(content(rank, events, **changes), Path(f"rank-{rank}.json"))


def two(late_us: float = 50.0, **changes: Any) -> list[Timeline]:
    """Rank 1 comes to version 3 after rank 0, which waits for it."""
    return [
        timeline(
            0,
            [
                event("arrival", 1000.5, 3),
                span("wait", 1001.0, late_us, 3, **{"for": "quorum"}),
                call(1000.0, late_us + 10, 3, group=[0, 1]),
            ],
        ),
        timeline(
            1,
            [event("arrival", 1000.5 + late_us, 3), call(1000 + late_us, 10, 3, group=[0, 1])],
            **changes,
        ),
    ]


# ---- merging -------------------------------------------------------------------------------------


def test_ranks_of_a_node_share_a_clock() -> None:
    merged = merge(two())
    jsonschema.validate(merged, SCHEMA)
    spans = [each for each in merged["traceEvents"] if each["ph"] == "X"]
    assert [(each["pid"], each["name"], each["ts"], each["dur"]) for each in spans] == [
        (0, "call", 0.0, 60.0),
        (0, "wait for quorum", 1.0, 50.0),
        (1, "call", 50.0, 10.0),
    ]
    assert spans[1]["args"] == {"version": 3, "for": "quorum", "last": 1}
    names = {
        each["pid"]: each["args"]["name"]
        for each in merged["traceEvents"]
        if each["name"] == "process_name"
    }
    assert names == {0: "rank 0", 1: "rank 1"}
    assert [each["clock_error_ns"] for each in merged["otherData"]["files"]] == [0, 0]


def test_hosts_are_aligned_by_what_they_measured() -> None:
    """Rank 1's clock is 7 ms behind rank 0's; by the wall clocks it would be 4 ms ahead."""
    merged = merge(two(clock=FAR | {"to_rank_0_ns": 7_000_000, "error_ns": 1500}))
    mine = [each["ts"] for each in merged["traceEvents"] if each["pid"] == 1 and "ts" in each]
    assert mine == [7050.0, 7050.5]
    assert merged["otherData"]["files"][1]["clock_error_ns"] == 1500


def test_hosts_are_aligned_by_their_wall_clocks() -> None:
    """Where nothing was measured: 4 ms more since the epoch at the same CLOCK_MONOTONIC."""
    merged = merge(two(clock=FAR))
    mine = [each["ts"] for each in merged["traceEvents"] if each["pid"] == 1 and "ts" in each]
    assert mine == [4050.0, 4050.5]
    assert merged["otherData"]["files"][1]["clock_error_ns"] is None


def test_clocks_are_chained_by_the_most_exact_way() -> None:
    """Host c was compared with a by one handle, and better with b by another."""
    a, b, c = ({"boot": name, "realtime_ns": 0} for name in "abc")
    first = {"collective": "1", "size": 3}
    found = align(
        [
            timeline(0, [], clock=a, **first),
            timeline(1, [], clock=b | {"to_rank_0_ns": 100, "error_ns": 5}, **first),
            timeline(2, [], clock=c | {"to_rank_0_ns": 999, "error_ns": 90}, **first),
            timeline(0, [], clock=b, collective="2"),
            timeline(1, [], clock=c | {"to_rank_0_ns": 20, "error_ns": 5}, collective="2"),
        ]
    )
    assert found["b", "n"].ns == 100
    assert (found["c", "n"].ns, found["c", "n"].error_ns) == (120, 10)


def test_several_handles_are_processes_of_their_own() -> None:
    other = [
        timeline(rank, [call(2000, 5, 0, sync=True)], collective="2", handle="norm")
        for rank in range(2)
    ]
    merged = merge([*two(), *other])
    names = [
        (each["pid"], each["args"]["name"])
        for each in merged["traceEvents"]
        if each["name"] == "process_name"
    ]
    assert names == [
        (0, "rank 0 (model)"),
        (1, "rank 1 (model)"),
        (2, "rank 0 (norm)"),
        (3, "rank 1 (norm)"),
    ]


# ---- summaries -----------------------------------------------------------------------------------


def test_summary() -> None:
    events = [
        span("wait", 0, 900, 0, **{"for": "creation"}),
        call(1000, 100, 0, late=True),
        span("compute", 1100, 700, 1, pending=False),
        span("reduce", 1810, 20, 1, slice=0),
        span("wait", 1830, 150, 1, **{"for": "quorum"}),
        span("merge", 1980, 20, 1),
        call(1800, 200, 1),
        span("wait", 2100, 500, 1, **{"for": "drain"}),
    ]
    (row,) = summarize([timeline(0, events, dropped=3)])
    assert (row.calls, row.late, row.total_s) == (2, 1, pytest.approx(1e-3))
    assert (row.computing, row.waiting, row.reducing) == pytest.approx((0.7, 0.15, 0.04))
    assert (row.waited_for, row.dropped, row.broke) == ("quorum", 3, False)
    first, second = summarize(two(late_us=80.0))
    assert (first.last, second.last) == (0, 1)
    assert (first.behind_s, second.behind_s) == (0, pytest.approx(80e-6))
    text = table([row, *summarize(two())])
    assert "70.0%" in text and "3 events dropped" in text and "0.050 ms" in text


def test_summary_of_a_handle_without_calls() -> None:
    (row,) = summarize([timeline(0, [], size=1)])
    assert (row.calls, row.total_s, row.waited_for) == (0, 0.0, None)


# ---- what is wrong with files --------------------------------------------------------------------


def test_files_are_found(tmp_path: Path) -> None:
    paths = [write(tmp_path, rank, []) for rank in range(2)]
    (tmp_path / "merged.json").write_text("{}")
    assert find([tmp_path, paths[0]]) == paths
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TraceError, match=r"has no timelines .* WAGMA_TRACE=.*empty"):
        find([empty])
    with pytest.raises(TraceError, match="nothing does not exist"):
        find([tmp_path / "nothing"])


def test_broken_files_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, 0, [call(1, 2, 3)])
    text = path.read_text().replace(', "traceEvents"', ',\n"traceEvents"')
    path.write_text(text[: text.index('"dur"')])
    with pytest.raises(TraceError, match=r"model\.rank-0\.json, line 2, column \d+: broken JSON"):
        read(path)
    for wrong in ("[]", "{}", '{"otherData": {}}'):
        path.write_text(wrong)
        with pytest.raises(TraceError, match="is no timeline of one rank"):
            read(path)
    path.write_text(json.dumps(content(0, [], wagma=99)))
    with pytest.raises(TraceError, match="has format 99"):
        read(path)
    path.write_text(json.dumps(content(0, [{"ph": "X"}])))
    with pytest.raises(TraceError, match="no timeline that wagma wrote: KeyError"):
        read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(TraceError, match="cannot be read"):
        read(path)


def test_files_of_several_runs_are_refused() -> None:
    check_one_run(two())
    later = timeline(1, [call(9e9, 5, 3)], collective="2", process="500-8")
    with pytest.raises(TraceError, match=r"mixed runs: .*rank-0\.json.*; .*rank-1\.json"):
        check_one_run([*two(), later])
    # a handle that follows in the same process, and one of other ranks at the same time
    check_one_run([*two(), timeline(1, [call(9e9, 5, 3)], collective="2")])
    check_one_run([*two(), timeline(1, [call(1000, 5, 3)], collective="2", process="500-8")])


def test_two_files_of_one_rank_are_refused() -> None:
    with pytest.raises(TraceError, match="both of rank 0"):
        check_one_run([two()[0], two()[0]])


# ---- the command ---------------------------------------------------------------------------------


def files(folder: Path, **changes: Any) -> None:
    write(folder, 0, [event("arrival", 5, 0), call(5, 20, 0)])
    write(folder, 1, [event("arrival", 15, 0), call(15, 10, 0)], **changes)


def test_merge_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path)
    output = tmp_path / "all.json"
    assert main(["trace", "merge", str(tmp_path), "-o", str(output)]) == 0
    jsonschema.validate(json.loads(output.read_text()), SCHEMA)
    said = capsys.readouterr()
    assert "all.json: 4 events of 2 files" in said.out and said.err == ""


@pytest.mark.parametrize("name", ["model.rank-1.json", "./model.rank-1.json", "link.json"])
def test_a_file_that_is_merged_is_not_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files(tmp_path)
    kept = (tmp_path / "model.rank-1.json").read_text()
    (tmp_path / "link.json").symlink_to("model.rank-1.json")
    with pytest.raises(SystemExit) as end:
        main(["trace", "merge", str(tmp_path), "-o", f"{tmp_path}/{name}"])
    assert end.value.code == 2
    assert "is one of the files to be merged: name another" in capsys.readouterr().err
    assert (tmp_path / "model.rank-1.json").read_text() == kept


def test_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks that are missing, events that are, clocks that may differ."""
    files(tmp_path, clock=FAR, size=4, dropped=12)
    assert main(["trace", "summary", "--json", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert [row["rank"] for row in json.loads(said.out)] == [0, 1]
    assert "no file of rank 2 of 4 of the handle 'model'" in said.err
    assert "the last 12 events are missing; raise WAGMA_TRACE_LIMIT" in said.err
    assert "wall clocks" in said.err


def test_summary_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path)
    assert main(["trace", "summary", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["rank", "calls", "late"]
    assert lines[2].split()[0] == "0" and lines[3].split()[0] == "1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["merge", "nowhere"], "nowhere does not exist"),
        (["merge"], "the following arguments are required: DIR|FILE"),
        ([], "the following arguments are required: WHAT"),
        (["merge", ".", "-o", "no/such/folder.json"], "cannot be written: No such file"),
    ],
)
def test_wrong_commands(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["trace", *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
