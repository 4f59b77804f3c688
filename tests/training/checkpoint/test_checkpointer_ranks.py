"""Tell all ranks what happens to one rank's part of a checkpoint."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from saved import Training, equal, folder  # noqa: F401 (a fixture)
from tiny import COMM, OPTIMIZERS, RANK, SIZE, build_model, values

import wagma
from wagma.checkpoint import Checkpointer, CheckpointError, CheckpointMismatchError
from wagma.checkpoint.folder import Folder
from wagma.collectives import MismatchError, WagmaError

pytestmark = pytest.mark.mpi

LAST = SIZE - 1


def saved_twice(folder: Path) -> list[torch.Tensor]:  # noqa: F811
    """Save versions 2 and 3; what there was at 2."""
    with Training(folder) as training:
        training.train(2)
        training.saver.save()
        state = training.everything()
        training.train(3)
        training.saver.save()
    COMM.Barrier()
    return state


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["no manifest", "no data", "corrupted"])
def test_damage_of_one_rank_makes_all_take_the_one_before(
    how: str,
    folder: Path,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = saved_twice(folder)
    if RANK == 0:
        newest = folder / "run-001-version-00000003"
        if how == "corrupted":
            flip(newest / f"rank-{LAST:05d}.pt")
        else:
            (newest / f"rank-{LAST:05d}.{'json' if how == 'no manifest' else 'pt'}").unlink()
    COMM.Barrier()
    caplog.clear()
    with Training(folder) as training:
        assert training.saver.load()
        assert training.opt.version == 2
        assert equal(training.everything(), expected)
    told = f"rank {LAST}" if how == "no manifest" and SIZE > 1 else "run-001-version-00000003"
    assert (told in caplog.text) == (RANK == 0)
    assert ("trying the checkpoint before it" in caplog.text) == (RANK == 0)


def test_an_error_of_one_disk_is_raised_on_every_rank(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write = Folder.write

    def full(*args: Any, **kwargs: Any) -> int:
        if RANK == LAST:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "its file")
        return write(*args, **kwargs)

    for asynchronous in (False, True):
        with Training(folder / str(asynchronous), every=1, asynchronous=asynchronous) as training:
            training.train(1)
            training.saver.save()
            training.saver.wait()
            with monkeypatch.context() as patched:
                patched.setattr(Folder, "write", full)
                training.train(3, training.saver.maybe_save)  # goes on
                training.saver.maybe_save()
                with pytest.raises(CheckpointError, match=f"rank {LAST}: No space left.*its file"):
                    training.saver.save()
                    training.saver.wait()
                if asynchronous:
                    with pytest.raises(CheckpointError, match="No space left"):
                        training.saver.wait()
            assert ("the training goes on: No space left" in caplog.text) == (RANK == LAST)
            assert training.saver.load()
            assert training.opt.version == 1
        caplog.clear()


def test_a_state_of_one_rank_that_cannot_be_read_back(folder: Path) -> None:  # noqa: F811
    with Training(folder) as training:
        if RANK == LAST:
            training.sampler.state_dict = lambda: {"f": print}  # type: ignore[assignment, method-assign]
        with pytest.raises(TypeError, match=r"extra\['sampler'\]\['f'\] is a builtins"):
            training.saver.save()
        assert not training.saver.load()


def test_a_model_of_another_kind_on_one_rank_is_told_to_all(folder: Path) -> None:  # noqa: F811
    saved_twice(folder)
    model = build_model()
    if RANK == LAST:
        model.register_buffer("mine", torch.zeros(2))
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.WAGMA(COMM)) as opt:
        saver = Checkpointer(folder, opt, model=model)
        before = values(model)
        with pytest.raises(CheckpointMismatchError) as caught:
            saver.load()
        assert "algorithm: saved AllreduceSGD, here WAGMA" in caught.value.differences
        where = "" if SIZE == 1 else f" (on rank {LAST})"
        assert f"tensor mine: here float32 [2], not saved{where}" in caught.value.differences
        assert len(set(COMM.allgather(str(caught.value)))) == 1
        assert torch.equal(values(model), before)
        saver.close()


SENT = (RuntimeError("lacking"), RuntimeError, "lacking")
NOT_SENT = (KeyError("lacking"), WagmaError, "KeyError: 'lacking'")  # no type that ranks send


@pytest.mark.parametrize(
    ("error", "raised", "text", "where"),
    [
        (*SENT, "what was read"),
        (*NOT_SENT, "the model"),
        pytest.param(*SENT, "the model", marks=pytest.mark.long),
        pytest.param(*NOT_SENT, "what was read", marks=pytest.mark.long),
    ],
)
def test_an_error_while_one_rank_loads_is_raised_on_every_rank(
    error: Exception,
    raised: type[Exception],
    text: str,
    where: str,
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved_twice(folder)

    def broken(*_: object, **__: object) -> dict[str, Any]:
        raise error

    with Training(folder) as training:
        with monkeypatch.context() as patched:
            if RANK == LAST and where == "what was read":
                patched.setattr("wagma.checkpoint.reading._merge", broken)
            elif RANK == LAST:
                patched.setattr(training.model, "state_dict", broken)
            with pytest.raises(raised, match=text) as caught:
                training.saver.load()
            assert type(caught.value) is raised
        assert training.opt.version == 0
        training.train(1)
        assert training.saver.load()
        assert training.opt.version == 3


@pytest.mark.mpi(min_size=2)
def test_parts_of_two_saves_at_one_version_are_not_mixed(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    with Training(folder) as training:
        training.train(2)
        training.saver.save()
        expected = training.everything()
        with torch.no_grad():
            training.model[0].weight.add_(1)
        if RANK == LAST:
            monkeypatch.setattr(Folder, "write", broken)
        with pytest.raises(CheckpointError, match="the disk is gone"):
            training.saver.save()
    monkeypatch.undo()
    with Training(folder) as training:
        assert training.saver.load()
        assert training.opt.version == 2
        assert equal(training.everything(), expected)


@pytest.mark.mpi(min_size=2)
def test_ranks_that_disagree_are_refused(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wagma.checkpoint.opening._RETRIES_S", (0.0,))
    with Training(folder) as training:
        model, opt = training.model, training.opt
        with pytest.raises(MismatchError, match="every differs between ranks"):
            Checkpointer(folder, opt, model=model, every=1 + RANK)
        with pytest.raises(TypeError, match=f"rank {LAST}: extra: 'a' is a int"):
            Checkpointer(folder, opt, model=model, extra={"a": 3} if RANK == LAST else {})
        elsewhere = folder / ("here" if RANK == 0 else "there")
        elsewhere.mkdir(exist_ok=True)
        COMM.Barrier()
        with pytest.raises(CheckpointError, match="does not see what rank 0 has written"):
            Checkpointer(elsewhere, opt, model=model)


def test_another_job_is_refused_on_every_rank(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any) -> None:
        raise CheckpointError("it is used by another job (process 1 on there)")

    with Training(folder) as training:
        monkeypatch.setattr("wagma.checkpoint.opening.FolderLock", refused)
        with pytest.raises(CheckpointError, match="used by another job"):
            Checkpointer(folder / "other", training.opt, model=training.model)


def test_safetensors_that_rank_0_lacks_are_told_to_all_and_the_training_goes_on(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Training(folder) as training:
        training.train(1)
        with monkeypatch.context() as patched:
            if RANK == 0:
                patched.setitem(sys.modules, "safetensors", None)
                patched.setitem(sys.modules, "safetensors.torch", None)
            with pytest.raises(ImportError, match="pip install"):
                training.saver.export(folder / "model.safetensors")
        assert not (folder / "model.safetensors").exists()
        training.train(2)
        training.saver.save()
        assert training.saver.load()
        assert training.opt.version == 2


def test_export_is_the_mean_and_changes_nothing(folder: Path) -> None:  # noqa: F811
    safetensors = pytest.importorskip("safetensors")
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4, bias=False)
    )
    model[2].weight = model[0].weight  # tied
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.LocalSGD(COMM, None), model=model) as opt:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 1 + RANK
            model[1].running_mean += RANK
        before = {name: value.clone() for name, value in model.state_dict().items()}
        saver = Checkpointer(folder, opt, model=model)
        path = folder / "model.safetensors"
        saver.export(path)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert opt.version == 0
        opt.synchronize()
        with safetensors.safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
        mean = dict(model.named_parameters())
        assert metadata == {"format": "pt", "2.weight": "0.weight"}
        assert tensors.keys() == model.state_dict().keys() - {"2.weight"}
        for name, value in tensors.items():
            expected = mean[name] if name in mean else COMM.bcast(before[name])
            assert torch.allclose(value, expected), name
        assert tensors["1.num_batches_tracked"].dtype == torch.int64
        COMM.Barrier()
        with pytest.raises(CheckpointError, match="cannot export"):
            saver.export(folder / "none" / "x")
        saver.close()
