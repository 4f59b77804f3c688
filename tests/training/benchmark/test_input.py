"""Refuse wrong command lines: one message, exit status 2, nothing trained; end at Ctrl-C."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import own
import pytest
from started import ENVIRONMENT, LIVENESS_S, command, ended, training, validator
from under_mpiexec import in_turn

from wagma.cli import main

pytestmark = pytest.mark.training

LONG = 300 * "x"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algorithms", "sgd"], "unknown algorithm 'sgd': choose from wagma, wagma-ff"),
        (["--algorithms", ""], "unknown algorithm ''"),
        (["--algorithms", "wagma,wagma"], "names wagma twice"),
        (["--algorithms", "local0"], "unknown algorithm 'local0'"),
        (["--algorithms", "sgp13"], "unknown algorithm 'sgp13'"),
        (["--algorithms", "nowhere:X"], "'nowhere:X' cannot be imported (No module named"),
        (["--algorithms", "wagma:X"], "'wagma:X' cannot be imported (module 'wagma' has no"),
        (["--algorithms", "wagma:__name__"], "'wagma:__name__' is a str: it has to be a class"),
        (["--task", "imagenet"], "invalid choice: 'imagenet'"),
        (["--steps", "0"], "--steps: 0 is too small: at least 1"),
        (["--seeds", "1,1"], "--seeds: '1,1' names 1 twice"),
        (["--seeds", "-1"], "--seeds: -1 is too small"),
        (["--batch", "0"], "--batch: 0 is too small"),
        (["--learning-rate", "0"], "--learning-rate: 0 is too small: more than 0 is needed"),
        (["--learning-rate", "nan"], "--learning-rate: nan is not finite"),
        (["--sync-period", "x"], "--sync-period: 'x' is no whole number"),
        (["--compute", "0"], "--compute: '0' is out of range: write more than 0"),
        (["--compute", "fast"], "--compute: 'fast' is no time"),
        (["--target", "high"], "--target: 'high' is no number"),
        (["--transport", "tcp"], "invalid choice: 'tcp'"),
        (["--epochs", "3"], "unrecognized arguments: --epochs 3"),
    ],
)
def test_wrong_options_are_named(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "training", *options])
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "bench training --help" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algorithms", "sgp4"], "sgp4: SGP(4) needs 5 ranks or more"),
        (["--algorithms", "own:policy"], "own:policy returns a DropCompute, and steps of somebody"),
        (["--algorithms", "own:nothing"], "own:nothing returns a NoneType: it has to return an ob"),
        (["--algorithms", "own:broken"], "own:broken cannot be made (ZeroDivisionError: no algor"),
        (["--parameters", "100"], "--parameters 100: the model of digits has 1898 already"),
        (["--group-size", "2"], "--group-size 2: this run has 1 rank only"),
        (["--imbalance", "papr"], "--imbalance: unknown imbalance 'papr': choose from none, paper"),
        (["--imbalance", "paper:2"], "--imbalance: paper:2: delayed_ranks is 2: at most 1"),
        (["--imbalance", "trace:none.csv"], "--imbalance: none.csv cannot be read: No such file"),
        (["--json", "/proc/none/x.json"], "--json: cannot write /proc/none/x.json"),
        (["--plots", "/proc/none"], "--plots: cannot write /proc/none/throughput.png"),
        (["--picture", "/proc/none/x.png"], "--picture: cannot write /proc/none/x.png"),
        (["--json", LONG], f"--json: cannot write {LONG}: File name too long"),
        (["--json", f"new/deep/{LONG}"], f"--json: cannot write new/deep/{LONG}: File name too"),
        (["--plots", f"new/{LONG}"], f"--plots: cannot write new/{LONG}/throughput.png: File na"),
        (["--json", "new/x.json", "--parameters", "9"], "--parameters 9: the model of digits"),
    ],
)
def test_what_these_ranks_cannot_do_is_named(
    tmp_path: Path,
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["bench", "training", *options])
    assert end.value.code == 2
    printed = capfd.readouterr()
    assert words in printed.err
    assert "Try: python -m wagma bench training --help" in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_all_ranks_refuse_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(own.__file__, tmp_path)
    monkeypatch.chdir(tmp_path)
    wrong = [["--algorithms", "sgd"], ["--algorithms", "own:policy"], ["--json", "/proc/x"]]
    lines = [[["bench", "training", *options]] * 3 for options in wrong]
    for done in in_turn(tmp_path, lines, timeout=LIVENESS_S):
        assert done.returncode == 2
        assert done.stderr.count("wagma bench training: ") == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_ranks_with_other_options_are_refused(tmp_path: Path) -> None:
    words = command(1, "--sync-period", "5")
    other = [*words[words.index("-n") :][2:-1], "6"]
    done = ended(tmp_path, [*words, ":", "-n", "1", *other])
    assert done.returncode == 2
    assert "--sync-period is 5 on rank 0, 6 on rank 1; give all ranks one command" in done.stderr


def test_help(tmp_path: Path) -> None:
    done = training(tmp_path, 0, "--help")
    assert done.returncode == 0
    for words in (
        *("--task", "--algorithms", "--seeds", "--compute", "--parameters", "--plots"),
        *("eager-majority", "lognormal:SECONDS", "default: 300 for digits, 200 for charlm"),
    ):
        assert words in re.sub(r"\s+", " ", done.stdout), words


def test_the_module_is_a_command(tmp_path: Path) -> None:
    done = ended(tmp_path, [sys.executable, "-m", "wagma.benchmarks.training", "--steps", "x"])
    assert done.returncode == 2
    assert "wagma bench training: argument --steps: 'x' is no whole number" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("ranks", [0, 3])
def test_finished_trainings_are_kept_after_ctrl_c(tmp_path: Path, ranks: int) -> None:
    """Ctrl-C reaches one rank, in the second training; the others hear of it."""
    names = "local10,wagma,allreduce"
    file = tmp_path / "result.json"
    _, errors = interrupted(
        *(tmp_path, ranks, "LocalSGD(10): ", "--json", str(file), "--algorithms", names),
        *("--steps", "400"),  # the second training takes 8 s
    )
    assert "interrupted: what is above is not all that was asked for" in errors
    document = json.loads(file.read_text())
    validator().validate(document)
    assert document["interrupted"] is True
    assert [run["algorithm"] for run in document["runs"]] == ["local10"]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [0, 3])
def test_ctrl_c_in_the_first_training_leaves_nothing(tmp_path: Path, ranks: int) -> None:
    output, errors = interrupted(
        *(tmp_path, ranks, "digits on ", "--json", "new/result.json", "--plots", "pictures"),
        *("--steps", "1000"),
    )
    assert output == ""
    assert errors == "interrupted: no training was finished, there are no results\n"
    assert list(tmp_path.iterdir()) == []


def interrupted(folder: Path, ranks: int, begin: str, *options: str) -> tuple[str, str]:
    """The output, and what follows a line with that beginning in the errors, a second after which
    one rank is interrupted."""
    process = subprocess.Popen(
        [*command(ranks, *options), "--compute", "20ms", "--batch", "2"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(begin):
            assert process.poll() is None
        time.sleep(1.0)
        os.kill(one_rank(process.pid) if ranks else process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=LIVENESS_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    return output, errors


def one_rank(launcher: int) -> int:
    """The process of a rank that the launcher has started, itself or by a helper."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, name, rest = re.fullmatch(
                r"(\d+) \((.*)\) (.*)", stat.read_text().strip()
            ).groups()
        except (OSError, AttributeError):
            continue
        found.append((int(pid), name, int(rest.split()[1])))
    family = {launcher}
    while more := {pid for pid, _, parent in found if parent in family} - family:
        family |= more
    return max(pid for pid, name, _ in found if pid in family and name.startswith("python"))
