"""Contents of timelines for tests, as the engine writes them."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def span(kind: str, began_us: float, took_us: float, version: int, **more: Any) -> Json:
    record = event(kind, began_us, version, **more)
    del record["s"]
    return {**record, "ph": "X", "dur": took_us}


def event(kind: str, at_us: float, version: int, **more: Any) -> Json:
    name = f"wait for {more['for']}" if kind == "wait" else kind
    arguments = {"version": version, **more}
    return {"ph": "i", "pid": 0, "tid": 0, "cat": kind, "name": name, "ts": at_us, "s": "t"} | {
        "args": arguments
    }


def call(began_us: float, took_us: float, version: int, **more: Any) -> Json:
    words = {"late": False, "merged": True, "sync": False, "posted": False, "broke": False}
    return span("call", began_us, took_us, version, **(words | more))


def content(rank: int, events: list[Json], **changes: Any) -> Json:
    """A file of rank 0, 1 of a handle of 2; `changes`: of otherData, and `clock` of its clock."""
    clock = {"boot": "b", "namespace": "n", "realtime_ns": 10**18} | changes.pop("clock", {})
    head = {
        "wagma": 1,
        "handle": "model",
        "collective": "00000000000000ab",
        "rank": rank,
        "size": 2,
        "group_size": 2,
        "quorum": 0,
        "transport": "shm",
        "host": "node1",
        "process": f"{100 + rank}-7",
        "events": len(events),
        "dropped": 0,
        "clock": clock,
    }
    track = {"ph": "M", "pid": rank, "tid": 0, "name": "thread_name", "args": {"name": "caller"}}
    return {"displayTimeUnit": "ns", "otherData": head | changes, "traceEvents": [*events, track]}


def write(folder: Path, rank: int, events: list[Json], **changes: Any) -> Path:
    """Write a timeline with these events to a file; return its path."""
    made = content(rank, events, **changes)
    path = folder / f"{made['otherData']['handle']}.rank-{rank}.json"
    path.write_text(json.dumps(made))
    return path
