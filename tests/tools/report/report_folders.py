"""Folders with small files of everything that a report is made of, for its tests."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_reports import FASTER_MPI, GOOD, MPI, POSTED, point, report, series
from divisions import result
from traces import call, content, event, span, write

from wagma.benchmarks.samples import Point
from wagma.benchmarks.settings import Settings
from wagma.benchmarks.views.document import document
from wagma.simulate import Workload, method
from wagma.simulate.network import FREE
from wagma.simulate.rows import rows
from wagma.trace.files import parse
from wagma.trace.merge import merge
from wagma.trace.summary import summarize

Json = dict[str, Any]

WARNING = "2 ranks share 1 core"


def put(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


# ---- benchmarks ----------------------------------------------------------------------------------


def benchmark(settings: Settings, *points: Point, **environment: Any) -> Json:
    made = document(report(settings, *points))
    made["environment"] = {"cores": 2, "transport": "shm", "warnings": [], **environment}
    return json.loads(json.dumps(made))


def by_size(*, late: bool = False, scale: int = 1) -> Json:
    """Medians of wagma's and the MPIs' slowest rank: 4.5, 9.5 and 9 us times the size's place."""

    def at(place: int) -> Point:
        factor = place * scale
        own, slow, fast = (
            [[factor * ns for ns in row] for row in rows]
            for rows in (
                [[1000, 3000], [2000, 4000], [3000, 5000], [4000, 6000]],
                MPI[1],
                FASTER_MPI[1],
            )
        )
        return point(
            series(own=own, late=late, checks=GOOD),
            series(MPI[0], slow),
            series(FASTER_MPI[0], fast),
            size=1024 * place,
        )

    return benchmark(Settings("allreduce", (1024, 2048)), at(1), at(2), warnings=[WARNING])


def by_delay() -> Json:
    """A rank comes late by nothing, 1 ms and 10 ms; who waits pays the delay and 9.5 us."""

    def at(delay_s: float) -> Point:
        ns = int(1e9 * delay_s)
        slow = [[7000 + ns, 9500 + ns]] * 4
        return point(
            series(late=[[False, True]]),
            series(MPI[0], slow),
            arrival="one-late",
            amplitude=delay_s,
        )

    settings = Settings("skew", (8,), skews=(0.0, 1e-3, 1e-2), quorum=1)
    return benchmark(settings, at(0.0), at(1e-3), at(1e-2))


def hidden() -> Json:
    own = [[3000, 3000]] * 4
    return benchmark(
        Settings("iallreduce", (8, 16)),
        *(point(series(own=own, **POSTED), size=size) for size in (8, 16)),
    )


def paid() -> Json:
    posted = {"posting": 500, "computing": 1000, "waiting": 700, "testing": 0}
    late = [[False, True]] * 4
    return benchmark(
        Settings("overlap", (8,), lateness=1e-3),
        point(
            series("wagma posted", delayed=late, **posted),
            series("MPI_Iallreduce in-place", MPI[1], delayed=late, **posted),
            arrival="one-late:1ms",
            amplitude=1e-3,
        ),
    )


def goals() -> Json:
    row = {"group": "small", "what": "4 B, in place", "ranks": 2, "goal": ">= 3x"}
    row |= {"measured": "4.2x", "verdict": "reached", "details": "1 us [1 us, 2 us]"}
    return {"launches": [], "table": [row], "environment": {"cpu": "A CPU", "cores": 2}}


# ---- simulations ---------------------------------------------------------------------------------


def simulated() -> Json:
    methods = [method("allreduce"), method("wagma-nosync")]
    work = [Workload.injected("paper:1:0.1", 0.1, ranks, 10) for ranks in (2, 4)]
    made, _ = rows(methods, work, FREE, 1, lambda: None)
    settings = {"profile": None, "compute": 0.1, "imbalance": "paper:1:0.1", "network": "none"}
    return {"wagma": "0", "settings": settings, "rows": made}


# ---- trainings -----------------------------------------------------------------------------------


def demo() -> Json:
    """A training of one seed, whose contributions have no age."""
    made = training()
    return {**made, "runs": [{**run, "staleness_histogram": {}} for run in made["runs"][::2]]}


SETTINGS = {
    "task": "digits",
    "algorithms": ["allreduce", "wagma"],
    "imbalance": "paper:1",
    "compute": 0.1,
    "parameters": None,
    "steps": 40,
    "seeds": [0, 1],
    "sync_period": 10,
    "group_size": None,
    "batch": 8,
    "learning_rate": 0.1,
    "transport": "auto",
    "target": 0.75,
    "json": None,
    "plots": None,
}


def training(in_percent: bool = True) -> Json:
    def run(algorithm: str, label: str, seed: int, throughput: float) -> Json:
        return {
            "algorithm": algorithm,
            "label": label,
            "seed": seed,
            "throughput": throughput,
            "ideal_throughput": 2000.0,
            "wall_seconds": 8.0,
            "ideal_seconds": 4.0,
            "version_seconds": 0.1,
            "steps_per_rank": [80, 80],
            "step_time_p50": 0.101,
            "step_time_p90": 0.202,
            "waited_seconds": 1.5,
            "waited_seconds_per_rank": [1.0 + seed, 2.0 + seed],
            "late_share": 0.25,
            "staleness_mean": 0.4,
            "staleness_histogram": {"0": 60, "1": 30, "14": 10},
            "communication_seconds": None,
            "consensus_distance": 0.0123,
            "consensus_distances": [0.0123],
            "accuracy": 0.9,
            "time_to_target": None if seed else 3.25,
            "curve": {"versions": [1, 2], "seconds": [1.0, 2.0], "accuracy": [0.3, 0.8]},
            "behind_share": 0.0,
        }

    return {
        "benchmark": "training",
        "environment": {
            "ranks": 2,
            "versions": {"torch": "2.13"},
            "warnings": [WARNING],
            "time": "2026-01-01T00:00:00",
            "mpi": {"library": "MPICH"},
            "transport": "shm",
            "hosts": [{"name": "node1"}],
            "load_average": [0.5],
        },
        "settings": SETTINGS,
        "imbalance": "1 of them delayed by 320 ms",
        "measures": {"name": "test accuracy" if in_percent else "return", "in_percent": in_percent},
        "interrupted": False,
        "runs": [
            run("allreduce", "AllreduceSGD", 0, 1000.0),
            run("allreduce", "AllreduceSGD", 1, 1200.0),
            run("wagma", "WAGMA", 0, 1600.0),
            run("wagma", "WAGMA", 1, 1700.0),
        ],
    }


def unbounded() -> Json:
    """A training of which nobody knows the bound, as of an algorithm of somebody's own."""
    made = training()
    own = {"algorithm": "package:Own", "label": "Own"}
    unknown = {"ideal_throughput": None, "ideal_seconds": None}
    return {**made, "runs": [*made["runs"], {**made["runs"][0], **own, **unknown}]}


def heterogeneous() -> Json:
    return json.loads(json.dumps(result()))


# ---- timelines -----------------------------------------------------------------------------------


def events(rank: int) -> list[Json]:
    """Eight versions of 10 ms each; rank 1 waits, every fourth version is of all ranks.

    Rank 0 computes 9 ms of each and reduces 0.5 ms; rank 1 computes 5 ms, waits 4 ms and reduces
    0.5 ms; it is late in version 5.
    """
    found = []
    for version in range(8):
        begin = 10_000.0 * version
        computed = 9_000.0 if rank == 0 else 5_000.0
        found.append(span("compute", begin, computed, version, pending=False))
        found.append(event("arrival", begin + computed, version))
        if rank == 1:
            found.append(span("wait", begin + 5_000, 4_000, version, **{"for": "quorum"}))
        found.append(span("reduce", begin + 9_000, 500, version, slice=0))
        late, sync = rank == 1 and version == 5, version % 4 == 3
        took = 10_000.0 - computed
        found.append(call(begin + computed, took, version, late=late, sync=sync, group=[0, 1]))
    return found


def traces(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in (0, 1):
        write(folder, rank, events(rank))


def merged() -> Json:
    return merge([parse(content(rank, events(rank)), Path(f"{rank}.json")) for rank in (0, 1)])


def summary() -> list[Json]:
    timelines = [parse(content(rank, events(rank)), Path(f"{rank}.json")) for rank in (0, 1)]
    return [asdict(row) for row in summarize(timelines)]


# ---- everything ----------------------------------------------------------------------------------


def everything(folder: Path) -> Path:
    put(folder, "allreduce.json", by_size(late=True))
    put(folder, "skew.json", by_delay())
    put(folder, "iallreduce.json", hidden())
    put(folder, "overlap.json", paid())
    put(folder, "table.json", goals())
    put(folder, "training/demo.json", demo())
    put(folder, "digits.json", training())
    traces(folder / "traces")
    return folder
