"""The demo's command line: its options, what is wrong with them, and faults."""

import json
import re
from pathlib import Path

import pytest
from demo_command import demo, launch, run_of

from wagma.cli import main
from wagma.demo.data import load


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


def test_commands_are_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "demo" in launch(tmp_path, 0, "-m", "wagma", "--help").stdout
    for words, named in ((["dmeo"], ("'dmeo'", "demo")), ([], ("a command is missing", "demo"))):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        said = capfd.readouterr().err
        assert all(name in said for name in named)


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
