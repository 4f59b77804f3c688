"""DistributedOptimizer on one rank: what it does to the optimizer that it wraps."""

import copy
import io
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mpi4py import MPI
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm
from wagma.collectives import Handle, PartialAllreduce
from wagma.collectives.topology import default_group_size

torch.set_num_threads(1)  # the models are tiny

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4),
    "LBFGS-wolfe": lambda p: torch.optim.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"),
}
ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "WAGMA": lambda: wagma.WAGMA(MPI.COMM_SELF),
    "AllreduceSGD": lambda: wagma.AllreduceSGD(MPI.COMM_SELF),
}


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> Iterator[Algorithm]:
    made = ALGORITHMS[request.param]()
    yield made
    made.close()


def build_model(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv1d(1, 3, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(15, 2)
    ).to(dtype)


def train(
    model: torch.nn.Module,
    optimizer: Optimizer,
    steps: int,
    schedulers: tuple[torch.optim.lr_scheduler.LRScheduler, ...] = (),
) -> list[float]:
    """Steps with a closure, all of whose losses are returned."""
    losses = []
    dtype = next(model.parameters()).dtype
    for step in range(steps):
        draw = torch.Generator().manual_seed(step)
        inputs = torch.randn(8, 1, 7, generator=draw).to(dtype)

        def closure(inputs: torch.Tensor = inputs) -> float:
            optimizer.zero_grad()
            loss = (model(inputs) - inputs[:, 0, :2]).square().mean()
            loss.backward()
            return loss

        losses.append(torch.as_tensor(optimizer.step(closure)).detach().item())
        for scheduler in schedulers:
            scheduler.step()
    return losses


def values(model: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_rank_equals_the_bare_optimizer(
    name: str, dtype: torch.dtype, algorithm: Algorithm
) -> None:
    bare_model, model = build_model(dtype), build_model(dtype)
    bare = OPTIMIZERS[name](bare_model.parameters())
    optimizer = wagma.DistributedOptimizer(OPTIMIZERS[name](model.parameters()), algorithm)
    assert train(model, optimizer, 25) == train(bare_model, bare, 25)
    optimizer.synchronize()
    assert torch.equal(values(model), values(bare_model))
    assert not torch.equal(values(model), values(build_model(dtype)))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_one_rank_equals_the_bare_optimizer_without_closure(
    set_to_none: bool, algorithm: Algorithm
) -> None:
    results = []
    for distributed in (False, True):
        model = build_model()
        optimizer: Optimizer = OPTIMIZERS["Adam"](model.parameters())
        if distributed:
            optimizer = wagma.DistributedOptimizer(optimizer, algorithm)
        for step in range(12):
            optimizer.zero_grad(set_to_none)
            for part in range(2):  # two backward passes accumulate
                model(torch.full((4, 1, 7), float(step + part))).square().mean().backward()
            if step >= 6:
                model[0].requires_grad_(False)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        results.append(values(model))
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_parameters(dtype: torch.dtype, algorithm: Algorithm) -> None:
    bare_model, model = build_model(dtype), build_model(dtype)
    optimizer = wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), algorithm)
    bare = OPTIMIZERS["SGD"](bare_model.parameters())
    assert train(model, optimizer, 5) == train(bare_model, bare, 5)
    assert torch.equal(values(model), values(bare_model))


def test_parameters_without_gradient_are_skipped_as_always(algorithm: Algorithm) -> None:
    results = []
    for distributed in (False, True):
        model = build_model()
        unused = torch.nn.Parameter(torch.ones(5))
        optimizer: Optimizer = torch.optim.SGD(
            [*model.parameters(), unused], lr=0.1, weight_decay=0.5
        )
        if distributed:
            optimizer = wagma.DistributedOptimizer(optimizer, algorithm)
        train(model, optimizer, 3)
        assert unused.grad is None
        assert unused.tolist() == [1] * 5
        results.append(values(model))
    assert torch.equal(*results)


def test_groups_and_state_are_the_inner_ones(algorithm: Algorithm) -> None:
    model = build_model()
    inner = torch.optim.SGD(
        [
            {"params": model[0].parameters(), "lr": 0.5},
            {"params": model[3].parameters(), "momentum": 0.9},
        ],
        lr=0.1,
    )
    optimizer = wagma.DistributedOptimizer(inner, algorithm)
    assert isinstance(optimizer, Optimizer)
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.state is inner.state
    assert optimizer.defaults is inner.defaults
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]
    train(model, optimizer, 2)
    assert optimizer.state[model[3].weight]["momentum_buffer"] is not None
    assert "momentum=0.9" in repr(optimizer).replace(": ", "=")


def test_schedulers_take_it(algorithm: Algorithm) -> None:
    results = []
    for distributed in (False, True):
        model = build_model()
        optimizer: Optimizer = OPTIMIZERS["SGD"](model.parameters())
        if distributed:
            optimizer = wagma.DistributedOptimizer(optimizer, algorithm)
        schedulers = (
            torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "scheduler.step() before optimizer.step()"
            train(model, optimizer, 10, schedulers)
        results.append((values(model), optimizer.param_groups[0]["lr"]))
    assert results[0][1] == results[1][1] != 0.05
    assert torch.equal(results[0][0], results[1][0])


def test_hooks_are_those_of_the_inner_optimizer(algorithm: Algorithm) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    optimizer = wagma.DistributedOptimizer(inner, algorithm)
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda opt, *_: calls.append(f"pre {opt is inner}"))
    optimizer.register_step_post_hook(lambda opt, *_: calls.append(f"post {opt is inner}"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("save"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: calls.append("load"))
    train(model, optimizer, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["pre True", "post True", "save", "load"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_goes_through_a_file(name: str, algorithm: Algorithm) -> None:
    model = build_model()
    optimizer = wagma.DistributedOptimizer(OPTIMIZERS[name](model.parameters()), algorithm)
    train(model, optimizer, 7)
    version = optimizer.version
    assert version >= 7
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, 5)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed_model = build_model()
    fresh = type(algorithm)(MPI.COMM_SELF)
    with wagma.DistributedOptimizer(OPTIMIZERS[name](resumed_model.parameters()), fresh) as resumed:
        resumed_model.load_state_dict(saved["model"])
        resumed.load_state_dict(saved["optimizer"])
        assert resumed.version == version
        train(resumed_model, resumed, 5)
        assert resumed.version == optimizer.version
        assert torch.equal(values(resumed_model), values(model))


def test_state_of_and_for_the_bare_optimizer(algorithm: Algorithm) -> None:
    model, bare_model = build_model(), build_model()
    bare = OPTIMIZERS["Adam"](bare_model.parameters())
    train(bare_model, bare, 4)
    optimizer = wagma.DistributedOptimizer(OPTIMIZERS["Adam"](model.parameters()), algorithm)
    optimizer.load_state_dict(copy.deepcopy(bare.state_dict()))
    model.load_state_dict(bare_model.state_dict())
    assert optimizer.version == 0
    train(model, optimizer, 3)
    train(bare_model, bare, 3)
    assert torch.equal(values(model), values(bare_model))
    bare.load_state_dict(optimizer.state_dict())


def test_versions_count_the_loop(algorithm: Algorithm) -> None:
    model = build_model()
    optimizer = wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), algorithm)
    assert optimizer.version == 0
    assert optimizer.outcome is None
    calls = 0
    while optimizer.version < 13:
        train(model, optimizer, 1)
        calls += 1
    assert calls == 13
    outcome = optimizer.outcome
    assert outcome is not None
    assert (outcome.version, tuple(outcome.contributors), tuple(outcome.versions)) == (
        12,
        (0,),
        (12,),
    )
    optimizer.synchronize()
    assert optimizer.version == 14


def test_a_replaced_data_is_an_error_and_leaves_the_model(algorithm: Algorithm) -> None:
    model = build_model()
    optimizer = wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), algorithm)
    train(model, optimizer, 2)
    model[3].bias.data = torch.zeros(2)
    before = values(model).clone()
    with pytest.raises(RuntimeError, match="has left the flat array"):
        train(model, optimizer, 1)
    with pytest.raises(RuntimeError, match="has left the flat array"):
        optimizer.synchronize()
    assert torch.equal(values(model), before)
    assert optimizer.version == 2


def test_wrong_arguments_are_refused(algorithm: Algorithm) -> None:
    model = build_model()
    inner = OPTIMIZERS["SGD"](model.parameters())
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        wagma.DistributedOptimizer(model, algorithm)
    for wrong, named in ((MPI.COMM_SELF, "an? Intracomm"), (wagma.WAGMA, "the class WAGMA")):
        said = rf"algorithm is {named}: pass an object, such as wagma\.WAGMA\(\)"
        with pytest.raises(TypeError, match=said):
            wagma.DistributedOptimizer(inner, wrong)
    with pytest.raises(ValueError, match=r"parameter 1 is of torch\.float64"):
        mixed = [torch.nn.Parameter(torch.ones(1, dtype=d)) for d in (torch.float, torch.double)]
        wagma.DistributedOptimizer(torch.optim.SGD(mixed), algorithm)
    empty = torch.optim.SGD([{"params": []}])
    with pytest.raises(ValueError, match="no parameters"):
        wagma.DistributedOptimizer(empty, algorithm)

    optimizer = wagma.DistributedOptimizer(inner, algorithm)
    with pytest.raises(TypeError, match="not yet distributed"):
        wagma.DistributedOptimizer(optimizer, ALGORITHMS["WAGMA"]())
    with pytest.raises(RuntimeError, match="one per optimizer"):
        other = OPTIMIZERS["SGD"](build_model().parameters())
        wagma.DistributedOptimizer(other, algorithm)
    with pytest.raises(TypeError, match="state_dict"):
        copy.deepcopy(optimizer)


def test_an_unknown_argument_is_told_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"'tau': it takes comm, sync_period, timeout, stall_warn"):
        wagma.LocalSGD(MPI.COMM_SELF, tau=4)


def test_use_without_optimizer_or_after_close(algorithm: Algorithm) -> None:
    with pytest.raises(RuntimeError, match="serves no optimizer"):
        _ = algorithm.version
    model = build_model()
    with wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), algorithm) as optimizer:
        train(model, optimizer, 2)
    optimizer.close()
    with pytest.raises(RuntimeError, match="closed"):
        train(model, optimizer, 1)
    values(model).sum()  # the parameters outlive the collective
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, 1), (2, 2), (3, 2), (4, 2), (5, 4), (8, 4), (16, 4), (17, 8), (64, 8), (65, 16)],
)
def test_default_group_size(size: int, expected: int) -> None:
    assert default_group_size(size) == expected


def test_package_lists_what_it_has() -> None:
    listed = {name for name in vars(wagma.algorithms) if not name.startswith("_")}
    rooms = {*wagma._ROOMS, *wagma._TORCH_ROOMS}
    assert {"checkpoint", "data", "inject", "logs", "preemption"} <= rooms
    others = {"__version__", *rooms, "Profile", "broadcast", "DistributedOptimizer"}
    assert set(wagma.__all__) == listed | others
    assert {"KSync", "DiLoCo", *wagma.__all__} <= set(dir(wagma))
    starred: dict[str, Any] = {}
    exec("from wagma import *", starred)
    assert starred["KSync"] is wagma.algorithms.KSync
    with pytest.raises(AttributeError, match="no attribute 'Wagma'"):
        _: Any = wagma.Wagma


def test_without_torch_the_collectives_work(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import wagma
from wagma.collectives import topology
assert topology.groups(4, 2, 0)
for name in ("KSync", "DistributedOptimizer", "broadcast", "checkpoint"):
    try:
        getattr(wagma, name)
    except ImportError as error:
        assert f"wagma.{name} needs" in str(error), error
        assert "python -m pip install torch" in str(error), error
    else:
        raise AssertionError(name)
from wagma import *
assert wagma.__all__ == ["__version__", *wagma._ROOMS, "Profile"], wagma.__all__
assert "KSync" not in dir(wagma)
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)


def test_import_leaves_torch_alone(tmp_path: Path) -> None:
    code = """
import sys, wagma
assert not hasattr(wagma, "foo")
assert "torch" not in sys.modules
assert "KSync" in wagma.__all__ and "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_averaged_in_the_memory_of_the_collective(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = []

    def empty(handle: Handle) -> Any:
        array = Handle.empty(handle)
        addresses.append((array.ctypes.data, array.nbytes))
        return array

    monkeypatch.setattr(PartialAllreduce, "empty", empty)
    model = build_model(dtype)
    algorithm = wagma.AllreduceSGD(MPI.COMM_SELF)
    with wagma.DistributedOptimizer(OPTIMIZERS["SGD"](model.parameters()), algorithm) as optimizer:
        train(model, optimizer, 1)
        memory = algorithm.gradients.memory
        assert addresses == [(memory.data_ptr(), memory.nbytes)]
