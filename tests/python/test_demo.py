"""The demo: its command line, its table beside the raw times, and what it has to show."""

import copy
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wagma.cli import main
from wagma.demo.data import load
from wagma.demo.figure import draw
from wagma.demo.report import render, table, time_to_accuracy
from wagma.inject import parse

LIVENESS_S = 120.0
SEEDS = (1, 2, 3)
DELAY = 0.015
STEPS = 200


# Command lines, one after the other in the same processes, which start slowly.
EACH = (
    "import sys; from wagma.cli import main; sys.exit(any(main(w.split()) for w in sys.argv[1:]))"
)


def launch(folder: Path, ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python on that many ranks, 0: without a launcher."""
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks else []
    return subprocess.run(
        [*launcher, sys.executable, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )


def demo(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return launch(folder, ranks, "-m", "wagma", "demo", *options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], str, Path]]:
    """Record, output and folder of a demo for each seed."""
    folder = tmp_path_factory.mktemp("demo")
    lines = [
        f"demo --seed {seed} --delay {DELAY} --steps {STEPS}"
        f" --json {seed}/raw/times.json --out {seed}/picture.png"
        for seed in SEEDS
    ]
    done = launch(folder, 4, "-c", EACH, *lines)
    assert done.returncode == 0, done.stderr
    outputs = re.findall(r".*?^Raw times: .*?$\n", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(outputs) == len(SEEDS), done.stdout
    return [
        (json.loads((folder / f"{seed}/raw/times.json").read_text()), output, folder / str(seed))
        for seed, output in zip(SEEDS, outputs, strict=True)
    ]


Runs = list[tuple[dict[str, Any], str, Path]]


def run_of(record: dict[str, Any], algorithm: str) -> dict[str, Any]:
    return next(run for run in record["runs"] if run["algorithm"] == algorithm)


def on_time(record: dict[str, Any], algorithm: str) -> list[float]:
    """Seconds of the steps that neither a delay of the own nor a synchronisation lengthened."""
    period = record["settings"]["sync_period"]
    return [
        seconds
        for rank in run_of(record, algorithm)["ranks"]
        for step, (seconds, delayed) in enumerate(
            zip(rank["step_seconds"], rank["delayed"], strict=True)
        )
        if not delayed and (step + 1) % period != 0
    ]


def test_wagma_is_as_accurate_as_allreduce(runs: Runs) -> None:
    means = {
        algorithm: statistics.mean(
            run_of(record, algorithm)["final_accuracy"] for record, _, _ in runs
        )
        for algorithm in ("allreduce", "wagma")
    }
    assert means["allreduce"] > 0.95
    assert abs(means["wagma"] - means["allreduce"]) <= 0.02


def test_wagma_is_free_of_the_delays_of_others(runs: Runs) -> None:
    for record, _, _ in runs:
        assert statistics.median(on_time(record, "allreduce")) >= DELAY
        assert statistics.median(on_time(record, "wagma")) < DELAY / 2


def test_wagma_reaches_the_accuracy_sooner(runs: Runs) -> None:
    """In the mean of the seeds; who waits at every step is slower by more than noise."""
    seconds = {
        algorithm: [time_to_accuracy(run_of(record, algorithm), 0.9) for record, _, _ in runs]
        for algorithm in ("allreduce", "wagma")
    }
    assert None not in seconds["allreduce"] + seconds["wagma"]
    assert statistics.mean(seconds["wagma"]) < statistics.mean(seconds["allreduce"])


def test_every_rank_recorded_every_step(runs: Runs) -> None:
    for record, _, _ in runs:
        settings = record["settings"]
        assert settings["imbalance"] == f"paper:2:{DELAY}"
        delays = parse(settings["imbalance"], 4, settings["seed"]).table(settings["steps"])
        for run in record["runs"]:
            assert [rank["rank"] for rank in run["ranks"]] == [0, 1, 2, 3]
            for rank in run["ranks"]:
                for key in ("step_seconds", "waited_seconds", "delayed", "late"):
                    assert len(rank[key]) == settings["steps"]
                assert sum(rank["step_seconds"]) <= rank["end_seconds"]
                slept = [s for s, d in zip(rank["step_seconds"], rank["delayed"], strict=True) if d]
                assert min(slept) >= DELAY
                assert rank["delayed"] == (delays[:, rank["rank"]] > 0).tolist()
            assert len(run["snapshot_steps"]) == len(run["snapshot_accuracies"])
        first, second = record["runs"]
        assert [rank["delayed"] for rank in first["ranks"]] == [
            rank["delayed"] for rank in second["ranks"]
        ]


def test_snapshots_are_of_the_way_there(runs: Runs) -> None:
    for record, _, _ in runs:
        for run in record["runs"]:
            accuracies = run["snapshot_accuracies"]
            assert accuracies[0] < accuracies[-1] <= run["final_accuracy"] + 0.05


def percentile(values: list[float], share: float) -> float:
    """Linear between the two nearest."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def expected_rows(record: dict[str, Any], algorithm: str) -> dict[str, list[float]]:
    """The table's column, recomputed from the raw times without the code of the report."""
    ranks = run_of(record, algorithm)["ranks"]
    settings = record["settings"]
    everything = [seconds for rank in ranks for seconds in rank["step_seconds"]]
    period = settings["sync_period"]
    others = [
        seconds
        for rank in ranks
        for step, seconds in enumerate(rank["step_seconds"])
        if (step + 1) % period != 0
    ]
    whole = max(rank["end_seconds"] for rank in ranks)
    lates = [late for rank in ranks for late in rank["late"]]
    run = run_of(record, algorithm)
    reached = [
        max(rank["snapshot_seconds"][index] for rank in ranks)
        for index, accuracy in enumerate(run["snapshot_accuracies"])
        if accuracy >= settings["target"]
    ]

    def both(values: list[float]) -> list[float]:
        return [1e3 * percentile(values, 0.5), 1e3 * percentile(values, 0.9)]

    return {
        "throughput": [4 * settings["steps"] * settings["batch"] / whole],
        "all steps": both(everything),
        "other steps: p50": both(others),
        "other steps, ranks on time": both(on_time(record, algorithm)),
        "waited per rank": [sum(rank["waited_seconds"]) for rank in ranks],
        "late contributions": [100 * sum(lates) / len(lates)],
        "test accuracy": [100 * run["final_accuracy"]],
        "time to 95 %": reached[:1],
        "whole training": [whole],
    }


def test_the_table_is_that_of_the_raw_times(runs: Runs) -> None:
    for record, output, _ in runs:
        result = table(record)
        assert result.algorithms == ("AllreduceSGD", "WAGMA")
        for column, algorithm in enumerate(("allreduce", "wagma")):
            expected = expected_rows(record, algorithm)
            assert len(expected) == len(result.rows)
            for row, (label, values) in zip(result.rows, expected.items(), strict=True):
                assert row.label.startswith(label)
                assert list(row.values[column]) == pytest.approx(values), row.label
        assert render(result) in output


def test_the_table_follows_the_record(runs: Runs) -> None:
    record = copy.deepcopy(runs[0][0])
    before = table(record)
    for rank in record["runs"][1]["ranks"]:
        rank["step_seconds"] = [seconds + 1 for seconds in rank["step_seconds"]]
    after = table(record)
    changed = {
        row.label.split(":")[0]
        for old, row in zip(before.rows, after.rows, strict=True)
        if old.values != row.values
    }
    assert changed == {"all steps", "other steps", "other steps, ranks on time"}


def test_the_picture_is_drawn(runs: Runs) -> None:
    _, output, folder = runs[0]
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert f"Picture: {SEEDS[0]}/picture.png" in output
    assert f"Raw times: {SEEDS[0]}/raw/times.json" in output


def test_one_rank_without_a_launcher(tmp_path: Path) -> None:
    done = demo(tmp_path, 0, "--steps", "3", "--sync-period", "1", "--algorithms", "wagma")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/demo.png").exists()
    assert "mpiexec -n 4" in done.stderr
    assert "other steps: p50, p90, ms" in done.stdout
    assert not list(tmp_path.glob("*.json"))


def test_three_ranks_with_other_options(tmp_path: Path) -> None:
    done = demo(
        tmp_path,
        3,
        *("--algorithms", "wagma,allreduce", "--steps", "7", "--delay", "0.001"),
        *("--delayed-ranks", "3", "--group-size", "3", "--sync-period", "4", "--seed", "0"),
        *("--json", "times.json", "--progress", "always"),
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "times.json").read_text())
    assert [run["algorithm"] for run in record["runs"]] == ["wagma", "allreduce"]
    assert all(all(rank["delayed"]) for run in record["runs"] for rank in run["ranks"])
    assert record["settings"]["group_size"] == 3
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stderr)
    assert re.search(r"WAGMA .* 7/7 steps", plain)
    assert done.stdout.count("throughput") == 1, "only rank 0 reports"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algorithms", "sgd"], "unknown algorithm 'sgd': choose from allreduce, wagma"),
        (["--algorithms", ""], "unknown algorithm ''"),
        (["--algorithms", "wagma,wagma"], "twice"),
        (["--delay", "-1"], "--delay: -1 is not from 0 to 60"),
        (["--delay", "nan"], "nan is not from 0 to 60"),
        (["--delay", "soon"], "--delay: invalid number value: 'soon'"),
        (["--delayed-ranks", "-1"], "--delayed-ranks: -1 is too small: at least 0"),
        (["--delayed-ranks", "2"], "--delayed-ranks: 2 is more than the 1 ranks"),
        (["--imbalance", "papr"], "--imbalance: unknown imbalance 'papr': choose from none, paper"),
        (["--imbalance", "kill:1:0"], "--imbalance: kill:1:0: rank is 1: the 1 ranks are 0 to 0"),
        (["--imbalance", "trace:none.csv"], "--imbalance: [Errno 2] No such file or directory"),
        (["--imbalance", "none", "--delay", "0"], "--imbalance: not allowed with argument --delay"),
        (["--group-size", "0"], "--group-size: 0 is too small: at least 1"),
        (["--group-size", "5"], "--group-size: 5 is more than the 1 ranks"),
        (["--steps", "0"], "--steps: 0 is too small: at least 1"),
        (["--sync-period", "0"], "--sync-period: 0 is too small: at least 1"),
        (["--seed", "x"], "--seed: 'x' is no whole number: at least 0"),
        (["--out", "/proc/none/x.png"], "--out: cannot write /proc/none/x.png"),
        (["--json", "/"], "--json: cannot write /"),
        (["--size", "3"], "unrecognized arguments"),
    ],
)
def test_wrong_options_are_named(
    tmp_path: Path,
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["demo", *options])
    assert end.value.code == 2
    printed = capfd.readouterr()
    assert words in printed.err
    assert "--help" in printed.err
    assert printed.out == ""


def test_a_wrong_option_is_named_once(tmp_path: Path) -> None:
    for option in (["--steps", "0"], ["--group-size", "5"]):
        done = demo(tmp_path, 2, *option)
        assert done.returncode == 2
        assert done.stderr.count("wagma demo: argument") == 1, done.stderr


def test_help(tmp_path: Path) -> None:
    done = demo(tmp_path, 0, "--help")
    assert done.returncode == 0
    for option in (
        *("--algorithms", "--delay", "--delayed-ranks", "--imbalance", "--steps", "--group-size"),
        *(
            "lognormal:SECONDS[:MEAN[:SIGMA[:CAP]]]",
            "stop:RANK:STEP:SECONDS",
            "--sync-period",
            "--seed",
            "--out",
            "--json",
            "mpiexec -n 4 python -m wagma demo",
        ),
    ):
        assert option in done.stdout


def test_commands_are_listed(tmp_path: Path) -> None:
    def wagma(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "wagma", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIVENESS_S,
            check=False,
        )

    assert "demo" in wagma("--help").stdout
    unknown = wagma("dmeo")
    assert unknown.returncode == 2
    assert "'dmeo'" in unknown.stderr
    assert "demo" in unknown.stderr
    assert wagma().returncode == 2


def test_shards_are_disjoint_and_complete() -> None:
    digits = load(seed=3)
    shards = [digits.shard(rank, 3) for rank in range(3)]
    assert sum(len(shard.train_classes) for shard in shards) == len(digits.train_classes)
    assert len(digits.train_classes) + len(digits.test_classes) == 1797
    assert digits.train_images[1].equal(shards[1].train_images[0])
    assert not load(seed=4).train_images.equal(digits.train_images)


def test_an_imbalance_of_delays_and_faults(tmp_path: Path) -> None:
    """One rank is late by a trace, which it reads once; another is stopped once."""
    (tmp_path / "late.csv").write_text("step,rank,seconds\n1,0,0.02\n3,0,0\n")
    done = demo(
        tmp_path,
        2,
        *("--steps", "8", "--json", "times.json", "--algorithms", "allreduce"),
        *("--imbalance", "trace:late.csv, stop:1:5:0.3"),
    )
    assert done.returncode == 0, done.stderr
    assert "2 ranks, delayed as late.csv says, rank 1 stopped for 0.3 s at step 5" in done.stderr
    record = json.loads((tmp_path / "times.json").read_text())
    assert record["settings"]["imbalance"] == "trace:late.csv:cycle,stop:1:5:0.3"
    late, stopped = run_of(record, "allreduce")["ranks"]
    assert late["delayed"] == [False, True, False, False] * 2
    assert stopped["delayed"] == [step == 5 for step in range(8)]
    assert min(late["step_seconds"][1], late["step_seconds"][5]) >= 0.02
    for rank in (late, stopped):
        assert rank["step_seconds"][5] >= 0.3, "all wait for a stopped rank"


def test_a_killed_rank_ends_the_demo(tmp_path: Path) -> None:
    done = demo(tmp_path, 2, "--imbalance", "kill:1:3")
    assert done.returncode != 0
    assert "throughput" not in done.stdout


def test_a_target_that_is_not_reached(runs: Runs, tmp_path: Path) -> None:
    record = copy.deepcopy(runs[0][0])
    record["settings"]["target"] = 1.5
    assert time_to_accuracy(record["runs"][0], 1.5) is None
    assert re.search(r"time to 150 % accuracy, s +- +-\n", render(table(record)))
    draw(record, tmp_path / "x.png")
    assert (tmp_path / "x.png").exists()
