"""Checkpoints of another number of ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from saved import Training, dropping_model, folder  # noqa: F401 (a fixture)
from tiny import COMM, RANK, values

import wagma
from wagma.checkpoint import Checkpointer
from wagma.data import UnevenBatchSampler

pytestmark = pytest.mark.mpi


def ranks(size: int) -> Any:
    """The first ranks; None on the others."""
    part = COMM.Split(0 if size > RANK else 1, RANK)
    return part if size > RANK else None


SIZES = [(1, 2), (2, 1), (2, 3), (3, 2), (1, 4), (4, 1), (4, 3)]
CHANGES = [
    pytest.param(*sizes, marks=pytest.mark.mpi(min_size=max(sizes)), id="{}-{}".format(*sizes))
    for sizes in SIZES
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_equal_models_stay_what_they_are(
    old: int,
    new: int,
    folder: Path,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved = momentum = samples = None
    if (comm := ranks(old)) is not None:
        with Training(folder, comm=comm) as training:
            training.train(3)
            training.saver.save()
            saved = [value.detach().clone() for value in training.model.parameters()]
            momentum = training.inner.state_dict()["state"][0]["momentum_buffer"].clone()
            samples = training.sampler.state_dict()["samples"]
    saved, momentum, samples = COMM.bcast((saved, momentum, samples))
    caplog.clear()
    if (comm := ranks(new)) is not None:
        with Training(folder, comm=comm) as training:
            assert training.saver.load()
            assert training.opt.version == 3
            assert all(map(torch.equal, saved, training.model.parameters()))
            state = training.inner.state_dict()["state"]
            assert torch.equal(state[0]["momentum_buffer"], momentum)
            assert training.sampler.state_dict()["samples"] == samples
            training.train(5)
            assert training.opt.version == 5
    assert ("begin anew" in caplog.text) == (RANK == 0)
    COMM.Barrier()


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_models_that_differ_become_their_mean(old: int, new: int, folder: Path) -> None:  # noqa: F811
    def make(comm: Any) -> tuple[torch.nn.Module, wagma.DistributedOptimizer, Checkpointer]:
        model = dropping_model().float()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        opt = wagma.DistributedOptimizer(inner, wagma.LocalSGD(comm, None), model=model)
        sampler = UnevenBatchSampler(40, [2] * comm.size, comm.rank, seed=1)
        saver = Checkpointer(folder, opt, model=model, extra=[sampler])
        return model, opt, saver

    models = None
    if (comm := ranks(old)) is not None:
        model, opt, saver = make(comm)
        with opt:
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, RANK + 1.0)
            opt.step()
            model[1].running_mean += RANK
            saver.save()
            saver.close()
            models = comm.gather((values(model), model[1].running_mean.clone(), RANK + 1.0))
    models = COMM.bcast(models)
    mean = torch.stack([one[0] for one in models]).double().mean(0).float()
    running = torch.stack([one[1] for one in models]).double().mean(0).float()
    if (comm := ranks(new)) is not None:
        model, opt, saver = make(comm)
        with opt:
            assert saver.load()
            assert opt.version == 1
            assert torch.allclose(values(model), mean, rtol=1e-6, atol=0)
            assert torch.allclose(model[1].running_mean, running)
            if old == 1:
                assert torch.equal(values(model), mean)
            assert len(set(comm.allgather(values(model).numpy().tobytes()))) == 1
            buffer = opt.state_dict()["state"][0]["momentum_buffer"]
            assert bool((buffer == comm.rank % old + 1.0).all())
            saver.close()
    COMM.Barrier()
