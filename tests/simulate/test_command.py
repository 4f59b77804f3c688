"""`wagma simulate`: what it prints, writes and refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from documents import blocks

from wagma.cli import Ended, main
from wagma.profile import TrainingProfile, save
from wagma.simulate.measured import compare, markdown, text
from wagma.simulate.network import FREE

QUICK = ("simulate", "--versions", "30", "--imbalance", "paper:1:0.2", "--progress", "never")


def test_rows_are_printed_written_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "wagma,allreduce,k-async2"
    output = ("--json", str(tmp_path / "rows.json"), "--plots", str(tmp_path / "plots"))
    network = ("--bytes", "1MiB", "--network", "ethernet", "--ranks-per-node", "2")
    assert main([*QUICK, "--ranks", "4,8", "--methods", names, *network, *output]) == 0
    printed, said = capsys.readouterr()
    assert not said
    document = json.loads((tmp_path / "rows.json").read_text())
    assert document["settings"]["imbalance"] == "paper:1:0.2"
    assert [(row["ranks"], row["method"]) for row in document["rows"]] == [
        (ranks, name) for ranks in (4, 8) for name in names.split(",")
    ]
    for row in document["rows"]:
        assert 0 < row["throughput"] < row["ideal"]
        assert f"{row['method']}  " in printed
    figures = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert figures == ["efficiency.png", "late.png", "throughput.png"]


def test_noise_makes_samples_of_small_updates_worth_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ("--json", str(tmp_path / "rows.json"), "--noise-scale", "3", "--ranks", "8")
    assert main([*QUICK, "--methods", "allreduce,k-sync2", *output]) == 0
    found = json.loads((tmp_path / "rows.json").read_text())["rows"]
    # Updates of 8 and of 2 local batches: (3 + 1) / (3 + 8), and (3 + 1) / (3 + 2).
    worth = [row["goodput"] / row["throughput"] for row in found]
    assert worth == pytest.approx([4 / 11, 4 / 5])
    assert capsys.readouterr().out.splitlines()[0].endswith("  goodput")


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("simulation.md", "python")[0])
    printed = capsys.readouterr().out
    assert re.fullmatch(r"(\w+: \d+ of \d+, \d+% late\n){2}", printed), printed


def test_all_leaves_out_what_a_workload_does_not_allow(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--ranks", "4", "--methods", "all"]) == 0
    printed, said = capsys.readouterr()
    assert "communication takes no time" in said
    table, _, rest = printed.partition("\nleft out:\n")
    assert "wagma-nosync" in table and "anytime" not in table
    assert "anytime, 4 ranks: micro_batches are 1: anytime stops between" in rest


def test_a_profile_gives_times_and_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = np.full((2, 40), 0.5)
    none = np.zeros((2, 40))
    profile = TrainingProfile(
        input=half,
        compute=half,
        wait=none,
        communication=none,
        hosts=("a", "a"),
        micro_batches=None,
        model_bytes=1 << 20,
        communication_sizes={},
        method=None,
        hook_seconds=np.zeros(2),
    )
    save(profile, tmp_path / "profile.json")
    rows = tmp_path / "rows.json"
    words = ("--profile", str(tmp_path / "profile.json"), "--network", "node", "--json", str(rows))
    assert main([*QUICK, *words, "--ranks", "5", "--methods", "allreduce"]) == 0
    assert not capsys.readouterr().err
    [row] = json.loads(rows.read_text())["rows"]
    assert row["ideal"] == pytest.approx(5.0)
    assert 0.99 < row["versions_per_second"] < 1.0


def test_trainings_are_compared_with_what_was_measured() -> None:
    """Two ranks, of which rank 0 takes 0.3 s and rank 1, the server, 0.1 s, for 8 versions."""
    settings = {
        "compute": 0.2,
        "imbalance": "one-server:0:0.2",
        "steps": 8,
        "micro_batches": 1,
        "sync_period": 4,
        "group_size": None,
        "threshold": None,
        "batch": 10,
        "parameters": None,
    }
    run = {"algorithm": "allreduce", "seed": 1, "version_seconds": 0.3, "late_share": 0.0}
    # The computing that was measured is that of the simulation, where it is known.
    runs = [
        {**run, "compute_seconds": 0.1, "compute_deviation": 0.0, "throughput": 2 * 10 / 0.3},
        {**run, "algorithm": "k-sync1", "compute_seconds": None, "version_seconds": 0.15},
    ]
    document = {"settings": settings, "environment": {"ranks": 2}, "runs": runs}
    whole, served = compare(document, FREE)
    assert (whole.figure, whole.error) == ("samples/s", pytest.approx(0.0))
    assert (served.figure, served.error) == ("versions/s", pytest.approx(-0.5))
    assert "error: median 25.0%, mean 25.0%, largest 50.0% of 2" in text([whole, served])
    assert "| k-sync1 | -50.0% |" in markdown([whole, served])
    assert "| allreduce; 100.0% |" in markdown([whole, served])
    assert compare(document, FREE, ["k-sync1"]) == [served]
    with pytest.raises(ValueError, match="did not emulate computing"):
        compare({**document, "settings": {**settings, "compute": None}}, FREE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--ranks", "4,x"), "argument --ranks: 'x'"),
        (("--methods", "wagmi"), "unknown method 'wagmi': choose from"),
        (("--ranks", "4", "--methods", "ksync9"), "ksync9, 4 ranks: the workload has 4 ranks"),
        (("--imbalance", "paper:9:1s", "--ranks", "4"), "delayed_ranks is 9: at most 4"),
        (("--json", "/nowhere/rows.json"), "/nowhere"),
        (("--measured", __file__), "test_command.py: broken JSON at line 1"),
        (("--profile", "/nowhere/profile.json"), "/nowhere/profile.json cannot be read"),
        (("--imbalance", "trace:/nowhere/d.csv"), "/nowhere/d.csv cannot be read: No such file"),
        (("--versions", f"{10**13}"), "4 ranks with 10,000,000,000,000 versions do not fit"),
        (("--bytes", "1e99"), "argument --bytes: '1e99' is out of range"),
        (("--noise-scale", "inf"), "argument --noise-scale: 'inf' is no noise scale"),
        (("--noise-scale", "-1"), "argument --noise-scale: '-1' is no noise scale"),
        (("--markdown",), "argument --markdown: the table is that of --measured"),
    ],
)
def test_what_is_wrong_is_told(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended):
        main([*QUICK, *words])
    assert told in capsys.readouterr().err
