"""MetricsWriter on one rank, and read_metrics."""

import builtins
import json
import logging
import math
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI

import wagma
from wagma.logs import MetricsWriter, read_metrics


@pytest.fixture
def opt() -> Iterator[wagma.DistributedOptimizer]:
    parameter = torch.nn.Parameter(torch.ones(3))
    inner = torch.optim.SGD([parameter], lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(MPI.COMM_SELF)) as optimizer:
        yield optimizer


def step(opt: wagma.DistributedOptimizer, steps: int = 1) -> None:
    for _ in range(steps):
        for group in opt.param_groups:
            for tensor in group["params"]:
                tensor.grad = torch.ones_like(tensor)
        opt.step()


def lines(folder: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    text = (folder / "rank-00000.jsonl").read_text()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def written(folder: Path) -> list[dict[str, Any]]:
    return [line for line in lines(folder) if "event" not in line]


def test_a_line_per_call(
    opt: wagma.DistributedOptimizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    with MetricsWriter(tmp_path / "new/folder", opt, tensorboard=False) as metrics:
        for _ in range(3):
            step(opt)
            metrics.log(loss=0.5, lr=1)
    start, *logged, end = lines(tmp_path / "new/folder")
    assert (start["event"], start["run"], start["restarts"]) == ("start", 0, 3)
    assert (start["rank"], start["size"], start["algorithm"]) == (0, 1, "WAGMA")
    assert start["host"] == os.uname().nodename
    assert [line["version"] for line in logged] == [1, 2, 3]
    assert all((line["loss"], line["lr"], line["run"]) == (0.5, 1, 0) for line in logged)
    assert logged[-1] == {**logged[-1], **opt.stats()}
    assert (end["event"], end["version"], end["steps"]) == ("end", 3, 3)
    assert start["time"] <= logged[0]["time"] <= end["time"]


def test_every_nth_version(opt: wagma.DistributedOptimizer, tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, opt, every=4, tensorboard=False) as metrics:
        for _ in range(13):
            step(opt)
            metrics.log()
    assert [line["version"] for line in written(tmp_path)] == [1, 4, 8, 12]


@pytest.mark.parametrize(
    "value",
    [2, 2.0, True, np.float32(2), np.int64(2), np.array(2), torch.tensor(2.0), torch.tensor(2)],
)
def test_numbers_of_loops(value: Any, opt: wagma.DistributedOptimizer, tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        metrics.log({"train/loss": value}, bf16=torch.tensor(2, dtype=torch.bfloat16))
    (line,) = written(tmp_path)
    assert line["train/loss"] == value
    assert line["bf16"] == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0.5", "a str"),
        (None, "a NoneType"),
        (1j, "a complex"),
        ([1.0], "a list"),
        (torch.ones(3), r"a Tensor of shape \(3,\)"),
        (np.ones((2, 1)), r"a ndarray of shape \(2, 1\)"),
        (np.array("x"), "a ndarray"),
    ],
)
def test_other_things_are_refused_by_name(
    value: Any, said: str, opt: wagma.DistributedOptimizer, tmp_path: Path
) -> None:
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        with pytest.raises(TypeError, match=f"^accuracy is {said}: give a number"):
            metrics.log(loss=1.0, accuracy=value)
        for name in ("steps", "version", "time", "run", "event", "not_finite"):
            with pytest.raises(ValueError, match=f"'{name}' already"):
                metrics.log({name: 1})
    assert written(tmp_path) == []


def test_not_finite(opt: wagma.DistributedOptimizer, tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        metrics.log(loss=torch.tensor(math.nan), most=math.inf, least=-math.inf, lr=0.5)
    (line,) = written(tmp_path)
    assert line["loss"] is line["most"] is line["least"] is None
    (read,) = read_metrics(tmp_path)
    assert math.isnan(read["loss"])
    assert (read["most"], read["least"], read["lr"]) == (math.inf, -math.inf, 0.5)
    assert "not_finite" not in read


def test_a_resumed_run_replaces_what_it_took_back(
    opt: wagma.DistributedOptimizer, tmp_path: Path
) -> None:
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        assert metrics.run == 0
        for version in range(6):
            step(opt)
            metrics.log(loss=version)
            metrics.log(accuracy=version)  # at the same version: one row
    saved = opt.state_dict()
    saved["wagma"]["version"] = 3
    opt.load_state_dict(saved)
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        assert metrics.run == 1
        step(opt)
        metrics.log(loss=100)
    rows = read_metrics(tmp_path)
    shown = [(row["run"], row["version"], row["loss"], row.get("accuracy")) for row in rows]
    assert shown == [(0, 1, 0, 0), (0, 2, 1, 1), (0, 3, 2, 2), (1, 4, 100, None)]
    assert rows == read_metrics(tmp_path / "rank-00000.jsonl")


def test_torn_lines(
    opt: wagma.DistributedOptimizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        metrics.log(loss=1)
    path = tmp_path / "rank-00000.jsonl"
    path.write_bytes(path.read_bytes() + b'{"run": 7, "version": 9, "lo')
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        assert metrics.run == 1
        step(opt)
        metrics.log(loss=2)
    assert [row["loss"] for row in read_metrics(tmp_path)] == [1, 2]
    assert "skipped 1 lines" in caplog.text


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no rank-\*\.jsonl"):
        read_metrics(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_metrics(tmp_path / "rank-00000.jsonl")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"every": 0}, ValueError, "every is 0"),
        ({"flush_seconds": math.nan}, ValueError, "flush_seconds is nan"),
        ({"tensorboard": "yes"}, ValueError, "tensorboard is 'yes'"),
    ],
)
def test_wrong_arguments(
    arguments: Any,
    error: type[Exception],
    said: str,
    opt: wagma.DistributedOptimizer,
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=said):
        MetricsWriter(tmp_path / "none", opt, **arguments)
    assert not (tmp_path / "none").exists()


def test_a_file_is_in_the_way(opt: wagma.DistributedOptimizer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"^rank 0 cannot write: /.*/file: File exists$"):
        MetricsWriter(tmp_path / "file", opt)
    step(opt)


def test_lines_wait_for_their_time(opt: wagma.DistributedOptimizer, tmp_path: Path) -> None:
    metrics = MetricsWriter(tmp_path, opt, tensorboard=False, flush_seconds=3600.0)
    metrics.log()
    assert len(lines(tmp_path)) == 1
    metrics.flush()
    assert len(lines(tmp_path)) == 2
    metrics.close()
    metrics.close()
    assert [line.get("event") for line in lines(tmp_path)] == ["start", None, "end"]
    at_once = MetricsWriter(tmp_path, opt, tensorboard=False, flush_seconds=0.0)
    at_once.log()
    assert len(lines(tmp_path)) == 5
    at_once.close()


ENDS: dict[str, Callable[[str], str]] = {
    "sys.exit in the block": lambda log: f"with metrics:\n    {log}\n    sys.exit(85)",
    "sys.exit without a block": lambda log: f"{log}\nsys.exit(85)",
    "an exception": lambda log: f"with metrics:\n    {log}\n    1 / 0",
    "a forked child": lambda log: f"{log}\nif os.fork() == 0: sys.exit(0)\nos.wait()\nsys.exit(85)",
}


@pytest.mark.parametrize("end", ENDS)
def test_no_line_is_lost_or_doubled_at_an_end(end: str, tmp_path: Path) -> None:
    program = f"""
import os, sys
from contextlib import nullcontext
from types import SimpleNamespace
from wagma.logs import MetricsWriter

meeting = SimpleNamespace(exchange=lambda function, last: [function()])
algorithm = SimpleNamespace(rank=0, size=1, meet=lambda: nullcontext(meeting))
opt = SimpleNamespace(algorithm=algorithm, version=4, stats=lambda: {{"steps": 4}})
metrics = MetricsWriter({str(tmp_path)!r}, opt, tensorboard=False, flush_seconds=999.0)
{ENDS[end]("metrics.log(loss=0.25)")}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == (1 if end == "an exception" else 85), done.stderr
    assert [line["loss"] for line in written(tmp_path)] == [0.25]


def test_summary(
    opt: wagma.DistributedOptimizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wagma")
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        for _ in range(4):
            step(opt)
            metrics.log()
        found = metrics.summary()
    assert found["steps"] == {"min": 4, "median": 4, "max": 4, "ranks": [4]}
    assert set(found) == {"steps", "versions_per_second", "late_share", "waited_seconds"}
    assert found["versions_per_second"]["min"] > 0
    assert caplog.text.count("1 rank at version 4") == 2  # by the call, and at the end
    caplog.clear()
    with MetricsWriter(tmp_path, opt, tensorboard=False, summary=False):
        pass
    with pytest.raises(ZeroDivisionError), MetricsWriter(tmp_path, opt, tensorboard=False):
        _ = 1 / 0
    assert caplog.text == ""


# ---- TensorBoard -------------------------------------------------------------------------------
class Scalars:
    """Stand in for torch.utils.tensorboard.SummaryWriter."""

    made: list["Scalars"] = []  # noqa: RUF012 (reset by `tensorboard`)
    fails = False

    def __init__(self, folder: str, *, purge_step: int | None, flush_secs: int) -> None:
        self.folder, self.purge_step, self.flush_secs = folder, purge_step, flush_secs
        self.values: list[tuple[str, float, int]] = []
        self.closed = False
        self.made.append(self)

    def add_scalar(self, name: str, value: float, version: int) -> None:
        if self.fails:
            raise OSError("no space left")
        self.values.append((name, value, version))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> type[Scalars]:
    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Scalars
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Scalars, "made", [])
    monkeypatch.setattr("wagma.logs.board.missing", lambda _: "")
    return Scalars


@pytest.mark.parametrize("wanted", ["auto", True])
def test_scalars(
    wanted: Any, opt: wagma.DistributedOptimizer, tmp_path: Path, tensorboard: type[Scalars]
) -> None:
    for run in range(2):
        with MetricsWriter(tmp_path, opt, tensorboard=wanted) as metrics:
            step(opt)
            metrics.log(loss=torch.tensor(0.5))
        board = tensorboard.made[run]
        assert board.folder == str(tmp_path / "tensorboard/rank-00000")
        assert board.purge_step == (2 if run else None)
        assert ("loss", 0.5, run + 1) in board.values
        assert ("wagma/steps", run + 1, run + 1) in board.values
        assert board.closed
    with MetricsWriter(tmp_path, opt, tensorboard=False) as metrics:
        metrics.log()
    assert len(tensorboard.made) == 2


def test_scalars_that_cannot_be_written(
    opt: wagma.DistributedOptimizer,
    tmp_path: Path,
    tensorboard: type[Scalars],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tensorboard, "fails", True)
    with MetricsWriter(tmp_path, opt) as metrics:
        for _ in range(3):
            metrics.log(loss=1)
    assert caplog.text.count("no space left") == 1
    assert len(written(tmp_path)) == 3


def test_without_tensorboard(
    opt: wagma.DistributedOptimizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "tensorboard is not installed: python -m pip install tensorboard"
    monkeypatch.setattr("wagma.logs.board.missing", lambda _: said)
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        assert "tensorboard" not in name
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=f"tensorboard=True, but {said}"):
        MetricsWriter(tmp_path, opt, tensorboard=True)
    with MetricsWriter(tmp_path, opt) as metrics:
        metrics.log(loss=1)
    assert len(written(tmp_path)) == 1
