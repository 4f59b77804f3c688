"""Every algorithm resumes from a Checkpointer by the rule that docs/checkpoints.md states."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from saved import folder  # noqa: F401 (a fixture)
from tiny import COMM, ON_TIME, OPTIMIZERS, RANK, SIZE, batch, build_model, on_time, step_on, values

import wagma
from wagma.algorithms import Algorithm
from wagma.checkpoint import Checkpointer

pytestmark = pytest.mark.mpi

TO_THE_BIT: dict[str, Callable[..., Algorithm]] = {
    **ON_TIME,
    "FastestK": lambda comm: wagma.FastestK(comm, comm.size, thresh=0, burnin=2),
    "Cannikin": lambda comm: wagma.Cannikin(comm, 8 * comm.size),
}
SHORT = ("WAGMA", "SGP", "DiLoCo-overlap")


def run(
    path: Path, make: Callable[..., Algorithm], last: int, *, every: int | None
) -> tuple[torch.Tensor, int]:
    """Train until `last`; the model then, and the version at which it began."""

    def play(
        meet: Callable[[], None],
    ) -> tuple[wagma.DistributedOptimizer, tuple[torch.Tensor, int]]:
        model = build_model()
        inner = OPTIMIZERS["Adam"](model.parameters())
        opt = wagma.DistributedOptimizer(inner, make(COMM), model=model)
        with opt, Checkpointer(path, opt, model=model, every=every) as saver:
            saver.load()
            began = saver.started_version
            while opt.version < last:
                meet()
                step_on(model, opt, batch(opt.version, RANK))
                saver.maybe_save()
            return opt, (values(model), began)

    return on_time(play)


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in TO_THE_BIT],
)
def test_resumed_to_the_bit(name: str, folder: Path) -> None:  # noqa: F811
    make = TO_THE_BIT[name]
    whole, _ = run(folder / "whole", make, 9, every=None)
    half, _ = run(folder / "parts", make, 5, every=5)
    resumed, began = run(folder / "parts", make, 9, every=None)
    assert began == 5
    assert torch.equal(resumed, whole)
    assert not torch.equal(half, whole)


@pytest.mark.long
def test_pairs_that_are_drawn_anew_begin_at_the_saved_models(folder: Path) -> None:  # noqa: F811
    model = build_model()
    with wagma.DistributedOptimizer(
        OPTIMIZERS["SGD"](model.parameters()), wagma.ADPSGD(COMM), model=model
    ) as opt:
        saver = Checkpointer(folder, opt, model=model)
        for version in range(4):
            step_on(model, opt, batch(version, RANK))
        saver.save()
        saved = values(model)
        step_on(model, opt, batch(4, RANK))
        assert saver.load()
        assert opt.version == 4
        assert torch.equal(values(model), saved)
        step_on(model, opt, batch(4, RANK))
        saver.close()


@pytest.mark.mpi(min_size=2)
def test_a_parameter_server_is_saved_after_synchronize(folder: Path) -> None:  # noqa: F811
    def train(last: int, *, load: bool) -> tuple[torch.Tensor, bool]:
        model = build_model()
        algorithm = wagma.ParameterServerSGD(COMM, k=SIZE - 1)
        inner = OPTIMIZERS["Adam"](model.parameters())
        with wagma.DistributedOptimizer(inner, algorithm, model=model) as opt:
            with pytest.raises(ValueError, match="save\\(\\) after synchronize"):
                Checkpointer(folder, opt, model=model, every=3)
            with Checkpointer(folder, opt, model=model) as saver:
                found = saver.load()
                assert found == load
                while opt.version < last:
                    step_on(model, opt, batch(opt.version, RANK))
                opt.synchronize()
                saver.save()
        return values(model), found

    first, _ = train(3, load=False)
    again, _ = train(3, load=True)
    assert torch.equal(first, again)
    further, _ = train(12, load=True)
    assert not torch.equal(first, further)


@pytest.mark.mpi(min_size=2)
def test_equal_models_continue_at_the_newest_version(
    folder: Path,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With KAsync: a rank that was behind takes the newest model, and keeps what it had to give."""
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.KAsync(COMM, 1, window=8), model=model) as opt:
        saver = Checkpointer(folder, opt, model=model)
        if RANK == 0:
            for version in range(3):
                step_on(model, opt, batch(version, RANK))
        COMM.Barrier()
        assert opt.version == (3 if RANK == 0 else 0)
        saver.save()
        newest = None
        if RANK == 0:
            newest = values(model), inner.state_dict()["state"][0]["momentum_buffer"]
        newest = COMM.bcast(newest)
        saver.close()
    names = [path.name for path in folder.glob("run-*")]
    assert names == ["run-001-version-00000003"]
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with wagma.DistributedOptimizer(inner, wagma.KAsync(COMM, 1, window=8), model=model) as opt:
        saver = Checkpointer(folder, opt, model=model)
        assert saver.load()
        assert opt.version == saver.started_version == 3
        assert torch.equal(values(model), newest[0])
        assert torch.equal(inner.state_dict()["state"][0]["momentum_buffer"], newest[1])
        assert "all continue at" not in caplog.text
        saver.close()


@pytest.mark.mpi(min_size=2)
@pytest.mark.shm("a rank runs ahead of one that calls nothing")
def test_models_that_differ_continue_at_the_lowest_version(
    folder: Path,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = build_model()
    make: Callable[..., Algorithm] = lambda: wagma.WAGMA(  # noqa: E731
        COMM, sync_period=20, grace=0, missed="fast-forward"
    )
    with wagma.DistributedOptimizer(
        OPTIMIZERS["SGD"](model.parameters()), make(), model=model
    ) as opt:
        saver = Checkpointer(folder, opt, model=model)
        for version in range(3 if RANK == 0 else 1):
            step_on(model, opt, batch(version, RANK))
        versions = COMM.allgather(opt.version)
        saver.save()
        saved = values(model)
        saver.close()
    names = [path.name for path in folder.glob("run-*")]
    assert names == [f"run-001-version-{max(versions):08d}"]
    model = build_model()
    with wagma.DistributedOptimizer(
        OPTIMIZERS["SGD"](model.parameters()), make(), model=model
    ) as opt:
        saver = Checkpointer(folder, opt, model=model)
        assert saver.load()
        assert opt.version == min(versions)
        assert torch.equal(values(model), saved)
        if RANK == 0 and len(set(versions)) > 1:
            assert f"the ranks saved versions {versions}; all continue at" in caplog.text
        saver.close()
