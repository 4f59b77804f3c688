"""The demo: a training benchmark with other defaults, and with words."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from started import ended, read, wagma
from test_measured import record, run, shown

from wagma.benchmarks.training import demo
from wagma.cli import main

pytestmark = [pytest.mark.training, pytest.mark.alone]

DELAY_S = 0.1  # much, beside what a busy machine takes
STEPS = 30


def launched(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    return ended(folder, wagma(ranks, "demo", *options))


def test_what_the_demo_has_to_show(tmp_path: Path) -> None:
    """Ranks on time pay for those that are late with AllreduceSGD, and not with WAGMA."""
    options = ("--steps", str(STEPS), "--imbalance", f"paper:2:{DELAY_S}", "--json", "demo.json")
    done = launched(tmp_path, 4, *options, "--progress", "always")
    assert done.returncode == 0, done.stderr
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stderr)
    assert re.search(rf"WAGMA .* {STEPS}/{STEPS} steps", plain)
    document = read(tmp_path / "demo.json")
    runs = {each["algorithm"]: each for each in document["runs"]}
    assert list(runs) == ["allreduce", "local10", "wagma", "wagma-nosync"]
    assert runs["allreduce"]["on_time_step_p50"] >= DELAY_S
    # The others of a rank that loses its core for a while wait for it, and it does not.
    least = {name: min(run["waited_seconds_per_rank"]) for name, run in runs.items()}
    for name in ("local10", "wagma", "wagma-nosync"):
        assert runs[name]["on_time_step_p50"] < runs["allreduce"]["on_time_step_p50"] / 2, name
        assert least[name] < runs["allreduce"]["waited_seconds"] / 2, name
    assert least["wagma-nosync"] < runs["wagma"]["waited_seconds"] / 2
    assert runs["wagma"]["consensus_distance"] < runs["local10"]["consensus_distance"]
    assert done.stdout.count("step on time p50") == 1, "only rank 0 reports"
    assert "WAGMA wins over LocalSGD where" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert (tmp_path / "out/demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Picture: out/demo.png" in done.stdout


@pytest.mark.long
def test_one_rank_without_a_launcher(tmp_path: Path) -> None:
    done = launched(tmp_path, 0, "--steps", "3", "--algorithms", "wagma")
    assert done.returncode == 0, done.stderr
    assert "try mpiexec -n 4 python -m wagma demo" in done.stdout
    assert "digits on 1 rank, none of them delayed" in done.stderr
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.long
def test_a_killed_rank_ends_the_demo(tmp_path: Path) -> None:
    done = launched(tmp_path, 2, "--imbalance", "kill:1:3")
    assert done.returncode != 0
    assert "samples/s" not in done.stdout


def test_its_help_has_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", "--help"])
    assert end.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        *("default: allreduce,local10,wagma,wagma-nosync)", "default: paper:2:0.05)"),
        *("trains 200 steps and draws out/demo.png", "lognormal:SECONDS[:MEAN[:SIGMA[:CAP]]]"),
    ):
        assert words in printed, words


def test_fewer_ranks_have_fewer_delays() -> None:
    made = shown(run())["settings"]
    asked = demo.Settings(**{**made, "imbalance": demo.PRESET["imbalance"]})
    found = [demo.fit(asked, size).imbalance for size in (1, 2, 3, 4)]
    assert found == ["none", "paper:1:0.05", "paper:2:0.05", "paper:2:0.05"]
    other = demo.Settings(**{**made, "imbalance": "none"})
    assert demo.fit(other, 1) == other


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (2.0, "AllreduceSGD waits for the slowest rank at every step. WAGMA averages what is "
         "there: 2.0x as fast (2.0 s, 4.0 s)."),
        (3.8, "WAGMA averages what is there: about as fast (3.8 s, 4.0 s)."),
        (8.0, "WAGMA averages what is there: 0.5x as fast (8.0 s, 4.0 s)."),
    ],
)  # fmt: skip
def test_times_are_compared_in_words(seconds: float, words: str) -> None:
    ended = [record(rank, end_seconds=seconds) for rank in range(2)]
    assert words in said(run("wagma", *ended), run())


def test_models_are_compared_in_words() -> None:
    local, near, far = run("local10"), run("wagma"), run("wagma")
    near["consensus_distance"], far["consensus_distance"] = 0.05, 0.4
    assert "its models are closer together: 5.0 % from their mean, not 20.0 %" in said(local, near)
    assert "its models are further apart: 40.0 % from their mean, not 20.0 %" in said(local, far)
    local["consensus_distance"] = None
    assert "models are" not in said(local, near)
    assert "WAGMA" not in said(run())


def test_seeds_are_compared_by_their_means() -> None:
    ended = [record(rank, end_seconds=6.0) for rank in range(2)]
    runs = [run("wagma"), run("wagma", *ended, seed=2), run(), run(seed=2)]
    assert "there: 0.8x as fast (5.0 s, 4.0 s)" in said(*runs, seeds=(1, 2))


def said(*runs: dict[str, Any], **changed: Any) -> str:
    """The conclusions, without the table and on one line."""
    text = demo.text(json.loads(json.dumps(shown(*runs, **changed))))
    return " ".join(text.split("\n\n")[1].split())
