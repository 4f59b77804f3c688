"""The code of the documents about training, run as it stands."""

import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import DOCS, blocks
from tiny import COMM, RANK, SIZE, on_all_ranks
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import wagma
from wagma.checkpoint import Checkpointer
from wagma.preemption import EXIT_RESTART

pytestmark = pytest.mark.mpi

LOOP, ACCUMULATION, WEIGHTED, UNEVEN = blocks("training.md", "python")
_, EPOCH = blocks("dropcompute.md", "python")
CLIPPING, SCALING = blocks("clipping.md", "python")
(LATE,) = blocks("parameters.md", "python")
SAVER, CHECKPOINT, SCHEDULER = blocks("checkpoints.md", "python")
(PREEMPTION,) = blocks("preemption.md", "python")
(LOGS,) = blocks("logs.md", "python")
SHARD, WITHIN, SEEDS, EVALUATION = blocks("migrating.md", "python")
(DIFF,) = blocks("migrating.md", "diff")
(CHOICE,) = blocks("algorithms.md", "python")
(FIRST_K,) = blocks("ksync.md", "python")
(SERVER,) = blocks("parameter-server.md", "python")


def build_model() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )


def samples(count: int, seed: int) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=draw)
    return TensorDataset(inputs, inputs[:, :3].argmax(dim=1))


def names(tmp_path: Path) -> dict[str, Any]:
    """What the documents take for granted."""
    torch.manual_seed(RANK)
    return {
        "comm": COMM,
        "rank": RANK,
        "size": SIZE,
        "model": build_model(),
        "loader": DataLoader(samples(8 * (8 + RANK % 3), seed=RANK), batch_size=8),
        "loss_function": torch.nn.functional.cross_entropy,
        "folder": str(tmp_path),
    }


def loss(known: dict[str, Any]) -> float:
    inputs, targets = samples(100, seed=99).tensors
    with torch.no_grad():
        model = known["model"].eval()
        return float(torch.nn.functional.cross_entropy(model(inputs), targets))


@pytest.mark.parametrize(
    "code",
    [LOOP, ACCUMULATION, WEIGHTED, UNEVEN, EPOCH, CLIPPING, SCALING, LATE, SCHEDULER, CHOICE],
)
def test_loops_train(code: str, tmp_path: Path) -> None:
    known = names(tmp_path)
    if code in (
        ACCUMULATION,
        WEIGHTED,
        CLIPPING,
        SCALING,
        CHOICE,
    ):  # no join: as many batches on all ranks
        known["loader"] = DataLoader(samples(64, seed=RANK), batch_size=8)
    before = loss({"model": build_model()})
    exec(code, known)
    version = known["opt"].version
    assert set(COMM.allgather(version)) == {version}
    assert version >= 2
    if code in (LOOP, LATE):
        tensors = list(known["model"].parameters())
        assert len(set(on_all_ranks(*tensors))) == 1
    if code == LOOP:
        assert loss(known) < before
        assert len(set(on_all_ranks(*known["model"].buffers()))) == 1
    if code == SCHEDULER:
        assert known["opt"].param_groups[0]["lr"] == pytest.approx(0.1 * 0.99**version)


@pytest.mark.parametrize("code", [FIRST_K, pytest.param(SERVER, marks=pytest.mark.mpi(min_size=3))])
def test_loops_of_first_gradients_train(code: str) -> None:
    known: dict[str, Any] = {}
    torch.manual_seed(RANK)
    exec(code, known)
    version = known["opt"].version
    assert version > 100
    assert set(COMM.allgather(version)) == {version}
    assert len(set(on_all_ranks(*known["model"].parameters()))) == 1
    # The sum of the inputs, which is learnt, has the weights 1; those of a new model are 0.65 off.
    # The last gradient may be one of the first model, of a rank that was late.
    assert (known["model"].weight - 1).abs().max() < 0.3


def test_checkpoint(tmp_path: Path) -> None:
    known = names(tmp_path)
    exec(CHECKPOINT, known)
    assert known["opt"].version == 6


def test_logs(tmp_path: Path) -> None:
    folder = COMM.bcast(str(tmp_path))
    known = names(tmp_path) | {"folder": folder}
    exec(LOGS, known)
    found = wagma.logs.read_metrics(folder)
    rows = [row for row in found if row["rank"] == RANK]
    assert len(rows) == len(known["loader"]) == rows[-1]["steps"]
    assert rows[-1]["loss"] == known["loss"].item()
    assert {row["rank"] for row in found} == set(range(SIZE))
    assert f"[rank {RANK}/{SIZE}]" in (Path(folder) / f"rank-{RANK:05d}.log").read_text() or RANK
    listed = re.findall(r"`(\w+)`", (DOCS / "logs.md").read_text().split("| name | |")[1])
    assert set(known["opt"].stats()) <= set(listed)


def side(sign: str) -> str:
    """The diff's code with its lines of one sign."""
    return "".join(line[1:] for line in DIFF.splitlines(True) if line[:1] in (" ", sign, "\n"))


def dataset(known: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(5)
    return known | {"dataset": samples(64, seed=1), "build_model": build_model}


def test_five_lines() -> None:
    assert sum(line.startswith("+") for line in DIFF.splitlines()) == 5


def test_migrated(tmp_path: Path) -> None:
    known = dataset(names(tmp_path))
    exec(side("+"), known)
    assert known["optimizer"].version == 2 * len(known["loader"]) + 1
    assert len(set(on_all_ranks(*known["model"].parameters()))) == 1
    exec(SHARD, known)
    exec(SEEDS, known)
    drawn = COMM.allgather((torch.rand(1).item(), np.random.rand(), random.random()))  # noqa: NPY002 (as users do)
    assert len({one for three in drawn for one in three}) == 3 * SIZE
    known["optimizer"].close()


def test_going_on_within_an_epoch(tmp_path: Path) -> None:
    """All batches of two epochs come once, in the order of a run that is not stopped."""
    folder = Path(COMM.bcast(str(tmp_path)))
    data = samples(12 * SIZE, seed=1)

    def run(folder: Path, stops: int) -> list[torch.Tensor]:
        known = names(folder)
        seen: list[torch.Tensor] = []

        def loss_function(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            seen.append(targets)
            return torch.nn.functional.cross_entropy(outputs, targets)

        sampler = DistributedSampler(data, num_replicas=SIZE, rank=RANK)
        loader = DataLoader(
            data, batch_size=4, sampler=sampler, generator=torch.Generator().manual_seed(2)
        )
        model = known["model"]
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM), model=model) as optimizer:

            class Stops:
                @property
                def stopping(self) -> bool:
                    return optimizer.version == stops

                def finish(self) -> None:
                    if self.stopping:
                        saver.save()

            with Checkpointer(folder, optimizer, model=model) as saver:
                known |= {"optimizer": optimizer, "saver": saver, "preemption": Stops()}
                known |= {"sampler": sampler, "loader": loader, "steps": 6}
                exec(WITHIN, known | {"loss_function": loss_function})
        return seen

    whole = run(folder / "whole", stops=6)
    parts = [*run(folder / "parts", stops=4), *run(folder / "parts", stops=6)]
    assert len(whole) == 6
    assert torch.equal(torch.cat(whole), torch.cat(parts))


def test_evaluation_without_stopping(tmp_path: Path) -> None:
    known = names(tmp_path)
    evaluated: list[torch.Tensor] = []

    def evaluate(model: torch.nn.Module) -> float:
        assert not model.training
        evaluated.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
        return loss({"model": model})

    inner = torch.optim.SGD(known["model"].parameters(), lr=0.1)
    algorithm = wagma.WAGMA(COMM, sync_period=10)
    batches = iter(DataLoader(samples(8 * 100, seed=RANK), batch_size=8))
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        known |= {"optimizer": optimizer, "draw_batch": lambda: next(batches), "evaluate": evaluate}
        exec(EVALUATION, known)
        final = torch.nn.utils.parameters_to_vector(known["model"].parameters()).detach()
    if RANK == 0:
        assert len(evaluated) == 3
        assert torch.equal(evaluated[-1], final), "version 29 was a synchronisation"
        assert not torch.equal(evaluated[0], final)
        assert [future.result() > 0 for future in known["accuracies"]] == [True] * 3


def test_the_checkpointer(tmp_path: Path) -> None:
    """A program that is started again goes on where the last one has ended."""
    pytest.importorskip("safetensors")
    folder = Path(COMM.bcast(str(tmp_path)))
    for steps, versions in ((4, 5), (9, 10)):
        known = {**names(folder), "steps": steps}
        exec(SAVER.replace("every=100", "every=2"), known)
        known["saver"].close()
        assert known["opt"].version == versions
        assert known["scheduler"].last_epoch == versions - (1 if steps == 4 else 2)
    assert known["saver"].started_version == 5
    COMM.Barrier()
    places = sorted(path.name for path in folder.glob("run-*"))
    assert places[-2:] == ["run-002-version-00000008", "run-002-version-00000010"]


def test_preemption(tmp_path: Path) -> None:
    """The program is ended by a signal to one rank, and goes on when it is started again."""
    folder = Path(COMM.bcast(str(tmp_path)))
    known = {**names(folder), "steps": 7}
    losses = 0

    def loss_function(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal losses
        losses += 1
        if losses == 3 and RANK == SIZE - 1:
            os.kill(os.getpid(), signal.SIGUSR2)
        return torch.nn.functional.cross_entropy(outputs, targets)

    known["loss_function"] = loss_function
    with pytest.raises(SystemExit) as ended:
        exec(PREEMPTION.replace("wagma.WAGMA(comm)", "wagma.WAGMA(comm, sync_period=2)"), known)
    assert ended.value.code == EXIT_RESTART
    assert known["opt"].version == 4
    exec(PREEMPTION.replace("wagma.WAGMA(comm)", "wagma.WAGMA(comm, sync_period=2)"), known)
    assert known["opt"].version == 8
    assert losses == 7
