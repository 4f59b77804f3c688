"""Gradients of AllreduceSGD that leave in backward(), in buckets."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mpi4py import MPI
from stalls import patient_creation, soon  # noqa: F401 (a fixture)
from tiny import batch, build_model, loss_of, on_all_ranks, step_on, values

import wagma
from wagma.collectives import HandleError, MismatchError, PeerError, StallError
from wagma.training.buckets import Bucket, Sent, cut
from wagma.training.flat import Layout

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
several = pytest.mark.skipif(SIZE == 1, reason="alone nobody is waited for")


def make(
    model: torch.nn.Module, bucket_bytes: Any, adam: bool = False, **waits: Any
) -> wagma.DistributedOptimizer:
    kind = torch.optim.AdamW if adam else torch.optim.SGD
    algorithm = wagma.AllreduceSGD(COMM, bucket_bytes, **waits)
    return wagma.DistributedOptimizer(kind(model.parameters(), lr=0.05), algorithm)


def train(bucket_bytes: int | None, transport: Any) -> list[torch.Tensor]:
    """Every way in which a step can come about."""
    model = build_model()
    found = []
    with make(model, bucket_bytes, adam=True, transport=transport) as opt:
        assert opt.version == 0
        for step in range(8):
            opt.zero_grad(set_to_none=step % 2 == 0)
            opt.weight = float((RANK + step) % 3)
            if step == 3:
                with opt.no_sync():
                    loss_of(model, batch(step, RANK)).backward()
            if step == 4 and RANK == 0:  # the first layer has no gradient on this rank
                next(iter(model.parameters())).requires_grad_(False)
            loss_of(model, batch(step, RANK)).backward()
            if step == 4 and RANK == 0:
                next(iter(model.parameters())).requires_grad_(True)
            if step == 5:
                opt.clip_grad_norm_(0.1)
            opt.step()
            assert opt.version == step + 1
            assert opt.outcome is not None
            assert opt.outcome.weight == sum((rank + step) % 3 for rank in range(SIZE))
            found.append(values(model))
        with opt.join(2 + RANK % 2):
            for step in range(2 + RANK % 2):
                opt.zero_grad()
                loss_of(model, batch(step, RANK)).backward()
                opt.step()
        found.append(values(model))

        def closure() -> torch.Tensor:
            opt.zero_grad()
            loss = loss_of(model, batch(9, RANK))
            loss.backward()
            return loss

        loss = opt.step(closure)
        found.append(torch.as_tensor(float(loss)).reshape(1))
        opt.synchronize()
        found.append(values(model))
    return found


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_they_are_those_of_one_piece_to_the_bit(transport: Any) -> None:
    whole = train(None, transport)
    for bucket_bytes in (1, 200):
        parts = train(bucket_bytes, transport)
        assert all(map(torch.equal, whole, parts))
        assert len(set(on_all_ranks(parts[-1]))) == 1


def test_buckets_are_cut_from_the_end() -> None:
    tensors = [torch.nn.Parameter(torch.zeros(n)) for n in (100, 1, 0, 50, 30)]
    layout = Layout.of(tensors)
    assert cut(layout, None) == [(0, 5)]
    assert cut(layout, 1) == [(4, 5), (3, 4), (1, 3), (0, 1)]
    assert cut(layout, 320) == [(3, 5), (0, 3)]
    assert cut(layout, 1 << 20) == [(0, 5)]
    part = layout.part(1, 4)
    assert [slot.offset for slot in part.slots] == [0, 16, 16]
    assert layout.span(3, 5) == (layout.slots[3].offset, layout.numel)


class Slow(torch.autograd.Function):
    """Calls a function in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, wait: Callable[[], object]) -> torch.Tensor:
        ctx.wait = wait
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.wait()
        return gradient, None


@several
@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_the_first_is_averaged_before_backward_ends(transport: Any) -> None:
    first, last = (torch.nn.Parameter(torch.full((4,), float(RANK))) for _ in range(2))
    model = torch.nn.ParameterList([first, last])
    with make(model, 1, transport=transport) as opt:
        buckets = opt.algorithm.buckets  # type: ignore[attr-defined]
        for _ in range(2):
            opt.zero_grad()
            slow = Slow.apply(first, lambda: buckets._under_way[0].result(timeout=60))
            (last * slow).sum().backward()
            ended = time.perf_counter()
            opt.step()
        assert buckets.sent[0].ended <= ended <= buckets.sent[1].began


@pytest.mark.parametrize(
    "what", ["changed", "replaced", "again", "weight", "scaler", "synchronize"]
)
def test_what_breaks_the_rules_is_told(what: str) -> None:
    model = build_model()
    texts = {
        "weight": "set opt.weight before backward",
        "synchronize": "gradients wait|no step has used",
        "again": r"no_sync\(\)",
        "scaler": r"average_gradients\(scaler\)",
        "changed": r"clip_grad_norm_\(\)",
        "replaced": r"clip_grad_norm_\(\)",
    }
    with pytest.raises(RuntimeError, match=texts[what]), make(model, 1) as opt:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        loss = loss_of(model, batch(0, RANK))
        (scaler.scale(loss) if what == "scaler" else loss).backward()
        if what == "changed":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        elif what == "replaced":
            for parameter in model.parameters():
                parameter.grad = 2 * parameter.grad
        elif what == "again":
            loss_of(model, batch(1, RANK)).backward()
        elif what == "weight":
            opt.weight = 2.0
        elif what == "scaler":
            scaler.step(opt)
        elif what == "synchronize":
            opt.synchronize()
        opt.step()


def test_a_scaler_acts_on_averages() -> None:
    model, one = build_model(), build_model()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with make(model, 1) as opt:
        for step in range(3):
            opt.zero_grad()
            scaler.scale(loss_of(model, batch(step, RANK))).backward()
            opt.average_gradients(scaler)
            scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
    sgd = torch.optim.SGD(one.parameters(), lr=0.05)
    for step in range(3):
        sgd.zero_grad()
        sum(loss_of(one, batch(step, rank)) / SIZE for rank in range(SIZE)).backward()
        sgd.step()
    assert torch.allclose(values(model), values(one), rtol=1e-12)


@several
def test_a_rank_that_fails_ends_the_others() -> None:
    model = build_model()
    kind = InterruptedError if RANK == 0 else PeerError
    with pytest.raises(kind), make(model, 1) as opt:
        for step in range(100):
            opt.zero_grad()
            loss_of(model, batch(step, RANK)).backward()
            if RANK == 0 and step == 3:
                raise InterruptedError
            opt.step()


@several
def test_a_rank_may_leave_with_gradients_under_way() -> None:
    model = build_model()
    with make(model, 1) as opt:
        for step in range(3 + (RANK > 0)):
            opt.zero_grad()
            loss_of(model, batch(step, RANK)).backward()
            if RANK == 0 and step == 2:
                break
            opt.step()


@several
def test_other_buckets_on_another_rank_are_refused() -> None:
    with pytest.raises(MismatchError, match="bucket_bytes"):
        make(build_model(), 1 + RANK)


@pytest.mark.parametrize(("value", "kind"), [(0, ValueError), (1.5, TypeError)])
def test_wrong_sizes_are_refused(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="bucket_bytes"):
        make(build_model(), value)


def test_drop_compute_is_refused() -> None:
    inner = torch.optim.SGD(build_model().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="pass bucket_bytes=None"):
        wagma.DistributedOptimizer(inner, wagma.DropCompute(wagma.AllreduceSGD(COMM, 1), 4))


def test_parameters_may_be_frozen_and_trained_again() -> None:
    """Which of them have gradients is known when backward() begins."""
    models = []
    for bucket_bytes in (None, 1):
        model = build_model()
        layer = list(model.parameters())[:2]
        for parameter in layer:
            parameter.requires_grad_(False)
        with make(model, bucket_bytes) as opt:
            for step in range(6):
                for parameter in layer:
                    parameter.requires_grad_(step in (0, 2, 3, 5))
                step_on(model, opt, batch(step, RANK))
        models.append(values(model))
    assert torch.equal(*models)


def test_parameters_may_be_used_twice_and_added() -> None:
    models = []
    for bucket_bytes in (None, 1):
        model, more = build_model(), build_model(1)
        with make(model, bucket_bytes) as opt:
            both = torch.nn.ModuleList([model, more])
            for step in range(4):
                if step == 2:
                    opt.add_param_group({"params": more.parameters()})
                opt.zero_grad()
                one, two = batch(step, RANK), batch(step + 9, RANK)
                (loss_of(model, one) + loss_of(model, two) + loss_of(more, one)).backward()
                opt.step()
        models.append(values(both))
    assert torch.equal(*models)


class Failing(torch.autograd.Function):
    """Raises in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # noqa: ARG004
        raise ArithmeticError


@several
def test_an_error_in_backward_ends_the_others() -> None:
    first, last = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    kind = ArithmeticError if RANK == 0 else PeerError
    with pytest.raises(kind), make(torch.nn.ParameterList([first, last]), 1) as opt:
        x = Failing.apply(first) if RANK == 0 else first
        (last * x).sum().backward()
        opt.step()


@several
@pytest.mark.usefixtures("patient_creation")
@pytest.mark.parametrize("transport", ["shm", pytest.param("mpi", marks=pytest.mark.long)])
def test_a_stall_is_told_in_each_step(transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first bucket, once: the timeouts of the others do not add to it."""
    model = build_model()
    opt = make(model, 1, transport=transport, timeout=soon(COMM))
    calls = []
    send = Bucket.send

    def counting(bucket: Bucket, weight: float) -> Sent:
        calls.append(bucket.first)
        return send(bucket, weight)

    monkeypatch.setattr(Bucket, "send", counting)
    try:
        if RANK == 0:
            for _ in range(2):
                with pytest.raises(StallError):
                    step_on(model, opt, batch(0, 0))
            assert len(calls) == 1
    finally:
        COMM.Barrier()
    with pytest.raises(InterruptedError), opt:
        raise InterruptedError


@several
def test_the_keyboard_interrupts_a_step() -> None:
    model = build_model()
    kind = KeyboardInterrupt if RANK == 0 else PeerError
    with pytest.raises(kind), make(model, 1) as opt:
        if RANK == 0:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            COMM.recv(source=0)
        step_on(model, opt, batch(0, RANK))
    if RANK == 0:
        for rank in range(1, SIZE):
            COMM.send(None, rank)


def test_a_forked_child_is_refused() -> None:
    model = build_model()
    with make(model, 1) as opt:
        loss_of(model, batch(0, RANK)).backward()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # it must not wait for ever
            try:
                opt.zero_grad()
                loss_of(model, batch(0, RANK)).backward()
                with pytest.raises(HandleError, match="forked child"):
                    opt.step()
                opt.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        opt.step()


@several
@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_a_rank_may_leave_early(transport: Any) -> None:
    model = build_model()
    with make(model, 1, transport=transport) as opt:
        for step in range(2 + 2 * (RANK > 0)):
            step_on(model, opt, batch(step, RANK))


@several
def test_a_training_that_is_dropped_ends_the_others() -> None:
    model = build_model()
    opt = make(model, 1)
    step_on(model, opt, batch(0, RANK))
    if RANK == 0:
        del opt
    else:
        with pytest.raises(PeerError), opt:
            step_on(model, opt, batch(1, RANK))
    COMM.Barrier()


def test_waits_for_all_buckets_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last one, and what others waited after backward had ended."""
    send, own = Bucket.send, []

    def waiting(bucket: Bucket, weight: float) -> Sent:
        sent = send(bucket, weight)
        own.append(sent.outcome.waited)
        return sent._replace(waited=100.0, ended=math.inf if bucket.first % 2 else 0.0)

    monkeypatch.setattr(Bucket, "send", waiting)
    model = build_model()
    with make(model, 1) as opt:
        step_on(model, opt, batch(0, RANK))
        assert len(own) == len(list(model.parameters())) == 4
        assert opt.outcome is not None
        assert opt.outcome.waited == own[-1] + 200
        assert opt.stats()["waited_seconds"] == opt.outcome.waited


def test_an_mpi_without_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    with pytest.raises(RuntimeError, match="MPI_THREAD_MULTIPLE"):
        make(build_model(), 1, transport="mpi")
