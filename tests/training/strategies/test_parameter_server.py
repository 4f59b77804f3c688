"""Parameter servers on real ranks: the last ranks serve, the others learn."""

import copy
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from refusals import error_everywhere
from tiny import COMM, RANK, SIZE, batch, build_model, loss_of, on_all_ranks, values

import wagma
from wagma.collectives import MismatchError, PeerError
from wagma.training.arrays import HostCopy
from wagma.training.strategies import parameter_server

METHODS = ("k-sync", "k-batch-sync", "k-async", "k-batch-async")
pytestmark = pytest.mark.mpi(min_size=2)


@contextmanager
def training(
    method: Any = "k-sync", *, k: int = 1, momentum: float = 0.9, **options: Any
) -> Iterator[tuple[wagma.DistributedOptimizer, torch.nn.Module]]:
    model = build_model(RANK)
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    algorithm = wagma.ParameterServerSGD(COMM, method, k=k, timeout=30.0, **options)
    with wagma.DistributedOptimizer(inner, algorithm, model=model) as opt:
        yield opt, model


def train(opt: wagma.DistributedOptimizer, model: torch.nn.Module, steps: int) -> None:
    """The loop that every algorithm has."""
    while opt.version < steps:
        opt.zero_grad()
        loss_of(model, batch(opt.version, RANK)).backward()
        opt.step()


class Apart(HostCopy):
    """Content with memory of its own, as that of a GPU's tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor)
        self.host = torch.empty_like(tensor)


@pytest.fixture(params=[False, True], ids=["", "apart"])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages have memory of their own, as where models are on GPUs."""
    if request.param:
        monkeypatch.setattr(parameter_server, "HostCopy", Apart)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("servers", [1, 2])
def test_all_learners_are_synchronous_sgd(servers: int) -> None:
    learners = SIZE - servers
    if learners < 1:
        pytest.skip("too few ranks")
    with training(k=learners, servers=servers) as (opt, model):
        train(opt, model, 8)
        opt.synchronize()
        version, result = opt.version, values(model)
    one = build_model(0)
    sgd = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9)
    for step in range(8):
        sgd.zero_grad()
        sum(loss_of(one, batch(step, rank)) / learners for rank in range(learners)).backward()
        sgd.step()
    assert version == 9
    assert torch.allclose(result, values(one), rtol=1e-12, atol=1e-14)
    assert len(set(on_all_ranks(result))) == 1


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_with_one_model(method: str) -> None:
    k = max(1, (SIZE - 1) // 2)
    with training(method, k=k) as (opt, model):
        first = values(model)
        train(opt, model, 30)
        opt.synchronize()
        stats = COMM.allgather(opt.stats())
        assert 31 <= opt.version <= 31 + SIZE
        assert len(set(COMM.allgather(opt.version))) == 1
        assert len(set(on_all_ranks(values(model)))) == 1
        assert not torch.equal(first, values(model))
    server, learners = stats[-1], stats[:-1]
    for name in ("vectors_up", "vectors_down"):
        assert server[name] == sum(learner[name] for learner in learners)
    assert server["vectors_up"] >= 30 * k
    if "async" in method:
        assert server["cancelled"] == 0
    else:
        assert server["staleness_mean"] == 0


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(
    ("method", "k"),
    [("k-async", 1), pytest.param("k-async", 2, marks=pytest.mark.long), ("k-batch-async", 2)],
)
def test_staleness_is_that_of_theory(method: str, k: int) -> None:
    """P / k - 1, or (P - 1) / k of a batch, but for what learners compute as the training ends.

    A gradient is as old as the versions that its learner passes in the step, without the one that
    it is part of ("k-async") or that it completes ("k-batch-async"): at any speed of the learners.
    """
    learners, draws = SIZE - 1, np.random.default_rng(RANK)
    passed = latest = 0
    with training(method, k=k, momentum=0.0) as (opt, model):
        while opt.version < 300:
            opt.zero_grad()
            loss_of(model, batch(0, RANK)).backward()
            time.sleep(draws.exponential(0.01))
            born, dropped = opt.version, opt.stats()["dropped"]
            opt.step()
            if learners > RANK and opt.stats()["dropped"] == dropped:
                latest = opt.version - born
                passed += latest
        opt.synchronize()
        versions = opt.version - 1
        server = COMM.bcast(opt.stats(), SIZE - 1)
    own = versions * (k if method == "k-async" else 1)
    expected = COMM.allreduce(passed) - own
    # A learner does not hear whether its latest gradient completes a batch that others complete.
    unsure = server["dropped"] * max(COMM.allgather(latest)) * (method == "k-batch-async")
    measured = server["staleness_mean"] * k * versions
    assert expected - unsure - 1e-6 <= measured <= expected + 1e-6


@pytest.mark.mpi(min_size=3)
def test_cancelled_work_ends_soon() -> None:
    """A slow learner hears of newer versions, and what it computed is not applied."""
    with training(k=1, momentum=0.0) as (opt, model):
        stopped = 0
        while opt.version < 20:
            opt.zero_grad()
            loss_of(model, batch(opt.version, RANK)).backward()
            if RANK == 0:
                for parameter in model.parameters():
                    parameter.grad = torch.full_like(parameter, 1e6)
                until = time.monotonic() + 60
                while not opt.should_stop():
                    assert time.monotonic() < until
                    time.sleep(0.001)
                stopped += 1
            else:
                time.sleep(0.01)
            opt.step()
        opt.synchronize()
        assert stopped > 0 or RANK > 0
        assert values(model).abs().max() < 100
        assert opt.stats()["cancelled"] > 0 or 0 < RANK < SIZE - 1


@pytest.mark.parametrize("servers", [1, 2])
def test_resumes(servers: int) -> None:
    learners = SIZE - servers
    if learners < 1:
        pytest.skip("too few ranks")
    with training(k=learners, servers=servers) as (opt, model):
        train(opt, model, 5)
        opt.synchronize()
        saved = copy.deepcopy((model.state_dict(), opt.state_dict()))
        train(opt, model, 12)
        opt.synchronize()
        went_on = values(model)
    with training(k=learners, servers=servers) as (opt, model):
        model.load_state_dict(saved[0])
        opt.load_state_dict(saved[1])
        assert opt.version == 6
        train(opt, model, 12)
        opt.synchronize()
        assert torch.allclose(values(model), went_on, rtol=1e-12, atol=1e-14)


def test_weights() -> None:
    """The mean is over the samples, and a rank without any counts nothing."""
    learners = SIZE - 1
    with training(k=learners, momentum=0.0) as (opt, model):
        start = values(model)
        loss_of(model, batch(0, RANK)).backward()
        opt.weight = float(RANK)
        opt.step()
        opt.synchronize()
        result = values(model)
    one = build_model(0)
    sgd = torch.optim.SGD(one.parameters(), lr=0.05)
    total = sum(range(learners))
    for rank in range(learners):
        (loss_of(one, batch(0, rank)) * rank / max(total, 1)).backward()
    sgd.step()
    assert torch.allclose(result, values(one) if total else start, rtol=1e-12, atol=1e-14)


def test_not_finite() -> None:
    """It is skipped, or it is an error on its rank; the server goes on if it can."""
    with training("k-batch-async", on_nonfinite="skip") as (opt, model):
        for step in itertools.count():
            # A learner that lost its core may find version 10 after its first step.
            if opt.version >= 10 and (step > 1 or RANK == SIZE - 1):
                break
            opt.zero_grad()
            (loss_of(model, batch(step, RANK)) * (float("nan") if step == 1 else 1.0)).backward()
            opt.step()
        opt.synchronize()
        assert values(model).isfinite().all()
        assert opt.stats()["nonfinite"] == (RANK < SIZE - 1)
    others = pytest.raises(FloatingPointError if RANK == 0 else PeerError)
    with others as caught, training(k=SIZE - 1) as (opt, model):
        while opt.version < 10:
            opt.zero_grad()
            loss_of(model, batch(0, RANK)).backward()
            if RANK == 0 and opt.version == 3:
                model[0].weight.grad.fill_(float("inf"))
            opt.step()
    assert ("parameter 0" if RANK == 0 else "rank 0") in str(caught.value)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(
    ("method", "transport"), [*((method, "auto") for method in METHODS), ("k-sync", "mpi")]
)
def test_goes_on_without_a_learner(method: str, transport: Any) -> None:
    try:
        with training(method, k=1, transport=transport) as (opt, model):
            while opt.version < 40 or RANK == 0:  # which may find the others at the end
                opt.zero_grad()
                loss_of(model, batch(0, RANK)).backward()
                if RANK == 0 and opt.version > 3:
                    raise InterruptedError
                opt.step()
                time.sleep(0.002)
            opt.synchronize()
            assert opt.version >= 41
            result = on_all_ranks(values(model))
    except InterruptedError:
        result = on_all_ranks(torch.zeros(0))
    assert len(set(result[1:])) == 1


def test_a_lost_server_is_an_error() -> None:
    with pytest.raises((PeerError, InterruptedError)) as caught, training() as (opt, model):
        if RANK == SIZE - 1:
            raise InterruptedError
        train(opt, model, 5)
    assert RANK == SIZE - 1 or f"rank {SIZE - 1}" in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_leaves_is_an_error(method: str) -> None:
    """Its learners would go on; nobody waits for ever, nor takes its farewell for an answer."""
    with pytest.raises(PeerError, match=f"rank {SIZE - 1}|has not left"), training(method) as made:
        if RANK < SIZE - 1:
            try:
                train(*made, 5)
            finally:
                assert made[0].stats()["vectors_down"] == 0


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("method", METHODS)
def test_a_training_may_end_without_synchronize(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    learners = SIZE - 1
    with training(method, k=learners) as (opt, model):
        while opt.version < 10:
            opt.zero_grad()
            loss_of(model, batch(opt.version, RANK)).backward()
            opt.step()
    assert opt.version >= 10
    assert not [one for one in caplog.records if "same version" in one.getMessage()]


@pytest.mark.mpi(min_size=3)
def test_a_loop_that_goes_on_alone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    learners = SIZE - 1
    with training(k=learners) as (opt, model):
        for step in range(4 + 4 * (RANK == 0)):
            opt.zero_grad()
            loss_of(model, batch(step, RANK)).backward()
            opt.step()
            if RANK == SIZE - 1:
                break
        opt.synchronize()
        assert opt.version == 5
    told = [one for one in caplog.records if "same version" in one.getMessage()]
    assert len(told) == (RANK == 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_scaler_is_used_where_there_are_gradients(method: str) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with training(method) as (opt, model):
        while opt.version < 5:
            if opt.pending:
                opt.step()
                continue
            opt.zero_grad()
            scaler.scale(loss_of(model, batch(opt.version, RANK))).backward()
            scaler.step(opt)
            scaler.update()
        opt.synchronize()
        assert opt.version >= 6
        assert opt.outcome is None
        assert len(set(on_all_ranks(values(model)))) == 1


def test_bad_input() -> None:
    def make(method: Any = "k-sync", **options: Any) -> None:
        with training(method, **options):
            pass

    for options, kind, text in (
        ({"k": 0}, ValueError, "k is 0"),
        ({"k": SIZE}, ValueError, f"k={SIZE} is more than"),
        ({"servers": SIZE}, ValueError, f"servers={SIZE} needs {SIZE + 1} ranks"),
        ({"method": "sync"}, ValueError, "'k-batch-async'"),
        ({"on_nonfinite": "drop"}, ValueError, "on_nonfinite='drop'"),
        ({"method": METHODS[RANK % 2]}, MismatchError, "method differs"),
    ):
        assert text in error_everywhere(COMM, lambda o=options: make(**o), kind)
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = wagma.DropCompute(wagma.ParameterServerSGD(COMM), 4)
    text = error_everywhere(COMM, lambda: wagma.DistributedOptimizer(inner, policy), TypeError)
    assert "ParameterServerSGD" in text
