"""Logs and metrics of several ranks in one folder."""

import logging
from pathlib import Path

import pytest
import torch
from tiny import COMM, RANK, SIZE, batch, build_model, step_on

import wagma
from wagma.collectives import PeerError
from wagma.logs import MetricsWriter, RankLogs, read_metrics

pytestmark = pytest.mark.mpi


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that all ranks have."""
    return Path(COMM.bcast(str(tmp_path)))


def make() -> tuple[torch.nn.Module, wagma.DistributedOptimizer]:
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM), model=model)


def test_each_rank_has_a_file_and_rank_0_the_summary(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wagma")
    model, opt = make()
    with opt, MetricsWriter(folder, opt, tensorboard=False) as metrics:
        for step in range(4):
            if RANK and step == 3:
                opt.weight = 0  # no gradient: a passive step
            step_on(model, opt, batch(step, RANK))
            metrics.log(rank_of_loop=RANK, loss=torch.tensor(0.5))
        found = metrics.summary()
    assert found["steps"]["ranks"] == [4, *[3] * (SIZE - 1)]
    assert (found["steps"]["min"], found["steps"]["max"]) == (4 if SIZE == 1 else 3, 4)
    assert COMM.allgather(found) == [found] * SIZE
    assert f"{SIZE} rank" in caplog.text if RANK == 0 else caplog.text == ""
    rows = read_metrics(folder)
    assert [(row["version"], row["rank"]) for row in rows] == [
        (version, rank) for version in range(1, 5) for rank in range(SIZE)
    ]
    assert all(row["rank_of_loop"] == row["rank"] for row in rows)


def test_all_ranks_count_the_same_runs(folder: Path) -> None:
    for run in range(2):
        _, opt = make()
        with opt, MetricsWriter(folder, opt, tensorboard=False) as metrics:
            assert metrics.run == run
    COMM.Barrier()
    if RANK == SIZE - 1:  # as if it had moved to a node with another disk
        (folder / f"rank-{RANK:05d}.jsonl").unlink()
    _, opt = make()
    with opt, MetricsWriter(folder, opt, tensorboard=False) as metrics:
        assert metrics.run == (2 if SIZE > 1 else 0)


def test_a_file_that_one_rank_cannot_make_is_everybodys_error(folder: Path) -> None:
    last = SIZE - 1
    if last == RANK:
        (folder / f"rank-{last:05d}.jsonl").mkdir()
        (folder / f"rank-{last:05d}.log").mkdir()
    model, opt = make()
    said = rf"^rank {last} cannot write: .*rank-{last:05d}"
    with opt:
        with pytest.raises(OSError, match=said + r"\.jsonl: Is a directory"):
            MetricsWriter(folder, opt)
        with pytest.raises(OSError, match=said + r"\.log: Is a directory"):
            RankLogs(folder, COMM)
        step_on(model, opt, batch(0, RANK))


@pytest.mark.mpi(min_size=2)
def test_the_summary_does_not_wait_for_a_rank_that_failed(folder: Path) -> None:
    model, opt = make()
    with (
        pytest.raises(ZeroDivisionError if RANK == 1 else PeerError),
        opt,
        MetricsWriter(folder, opt, tensorboard=False) as metrics,
    ):
        step_on(model, opt, batch(0, RANK))
        metrics.log()
        if RANK == 1:
            _ = 1 / 0
    COMM.Barrier()
    assert len(read_metrics(folder)) == SIZE


def test_what_all_ranks_say_is_shown_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RankLogs(folder, COMM):
        COMM.Barrier()
        logging.getLogger("wagma").warning("rank %d waits", RANK)
        logging.getLogger("wagma").info("saved by %d", RANK)
        COMM.Barrier()
    own = (folder / f"rank-{RANK:05d}.log").read_text()
    assert own.count(f"[rank {RANK}/{SIZE}]") == own.count("\n") == (3 if RANK == 0 else 2)
    shown = COMM.allgather(capsys.readouterr().err)
    assert "rank 0 waits" in shown[0]
    assert "saved by 0" in shown[0]
    assert sum(text.count(" waits") for text in shown[1:]) <= 1
    assert "saved" not in "".join(shown[1:])
    COMM.Barrier()
    assert not list(folder.glob(".shown*"))
