"""K-sync, K-async and fastest-k SGD without a server, on real ranks."""

import logging
import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from mpi4py import MPI
from tiny import batch, build_model, loss_of, on_all_ranks, step_on, values

import wagma
from wagma.collectives import MismatchError, PeerError, QuorumMismatchError
from wagma.theory.fastest_k import AdaptiveK
from wagma.training.strategies.fastest_k import Progress

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
TRANSPORTS = ["shm", "mpi"]
several = pytest.mark.skipif(SIZE == 1, reason="nobody is late alone")


class Recorded:
    """A training of one parameter per rank; a rank's gradient is 1 in its own place."""

    def __init__(self, algorithm: wagma.Algorithm) -> None:
        self.weights = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.float64))
        inner = torch.optim.SGD([self.weights], lr=1.0)
        inner.register_step_post_hook(lambda *_: self.updates.append(self._grad()))
        self.updates: list[list[float]] = []
        self.opt = wagma.DistributedOptimizer(inner, algorithm)

    def _grad(self) -> list[float]:
        assert self.weights.grad is not None
        return list(self.weights.grad.tolist())

    def backward(self) -> None:
        self.opt.zero_grad()
        self.weights[RANK].backward()


def train(model: torch.nn.Module, algorithm: wagma.Algorithm, weights: bool) -> list[torch.Tensor]:
    found = []
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with wagma.DistributedOptimizer(inner, algorithm) as opt:
        while (version := opt.version) < 8:
            opt.zero_grad()
            loss_of(model, batch(version, RANK)).backward()
            opt.weight = (version + RANK) % 3 if weights else 1.0
            opt.step()
            found.append(values(model))
        opt.synchronize()
        found.append(values(model))
    return found


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", [wagma.KSync, wagma.KAsync, wagma.FastestK])
def test_with_all_ranks_it_is_allreduce_sgd(kind: Any, transport: Any) -> None:
    for weights in (False, True):
        expected = train(build_model(), wagma.AllreduceSGD(COMM, transport=transport), weights)
        found = train(build_model(), kind(COMM, SIZE, transport=transport), weights)
        assert len(found) == len(expected)
        assert all(map(torch.equal, found, expected))


@several
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_update_is_the_mean_of_those_that_were_there(transport: Any) -> None:
    run = Recorded(wagma.KSync(COMM, SIZE - 1, transport=transport))
    steps = 0
    with run.opt as opt:
        while opt.version < 12:
            time.sleep(0.02 * (RANK == SIZE - 1))
            run.backward()
            before = len(run.updates)
            opt.step()
            steps += 1
            assert opt.outcome is not None
            contributors = opt.outcome.contributors
            assert len(contributors) >= SIZE - 1
            expected = [(rank in contributors) / len(contributors) for rank in range(SIZE)]
            assert run.updates[-1] == pytest.approx(expected, abs=1e-15)
            assert opt.outcome.late == (RANK not in contributors)
            assert len(run.updates) - before == len(opt.outcome.results)
    assert len(set(map(str, COMM.allgather(run.updates)))) == 1
    late = run.opt.stats()["late"]
    assert late == 0 if RANK < SIZE - 1 else late > 0
    assert len(run.updates) == 12
    assert steps == 12 if RANK < SIZE - 1 else steps < 12


@several
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_gradient_is_taken_once_as_it_is(transport: Any) -> None:
    run = Recorded(wagma.KAsync(COMM, 1, transport=transport))
    random.seed(RANK)
    taken, computed = 0, 0
    with run.opt as opt:
        while opt.version < 40:
            if not opt.pending:
                born = opt.version
                computed += 1
                time.sleep(random.expovariate(1 / 0.005))
                run.backward()
            called = opt.version
            opt.step()
            assert opt.outcome is not None
            assert opt.pending == opt.outcome.late
            if not opt.outcome.late:
                taken += 1
                assert opt.outcome.staleness == called - born
        assert taken == computed - opt.pending
        opt.synchronize()
        assert not opt.pending
    parts = np.array(run.updates[:40])
    assert (parts > 0).sum(0).tolist() == COMM.allgather(taken)
    assert parts.sum(1) == pytest.approx(1.0)  # no gradient counts more than another
    assert len(set(map(str, COMM.allgather(run.updates)))) == 1


def make_late(run: Recorded, closure: Callable[[], Any] | None = None) -> None:
    """Rank 0's next gradient comes after the others' version."""
    if RANK == 0:
        time.sleep(0.2)
    if closure is None:
        run.backward()
    run.opt.step(closure)
    COMM.Barrier()


@several
def test_what_a_loop_does_while_a_gradient_is_pending(caplog: pytest.LogCaptureFixture) -> None:
    run = Recorded(wagma.KAsync(COMM, 1))
    evaluated = []

    def closure() -> torch.Tensor:
        evaluated.append(run.opt.version)
        run.opt.zero_grad()
        loss = run.weights[RANK] + len(evaluated)
        loss.backward()
        return loss.detach()

    with run.opt as opt, caplog.at_level(logging.WARNING):
        make_late(run)
        assert opt.pending or RANK != 0
        while opt.version < 6:
            run.backward()  # a loop that does not ask
            opt.weight = 1.0
            opt.step()
        opt.synchronize()
        while opt.version < 20:
            time.sleep(0.02 * (RANK == 0))
            pending, before = opt.pending, len(evaluated)
            loss = opt.step(closure)
            assert len(evaluated) == before + (not pending)
            assert loss is not None
        opt.synchronize()
    ignored = [record for record in caplog.records if "opt.pending" in record.getMessage()]
    assert len(ignored) == 1 or RANK != 0  # others may be late as well
    assert len(ignored) <= 1


@several
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancelled_work_can_end(transport: Any) -> None:
    run = Recorded(wagma.KSync(COMM, SIZE - 1, transport=transport))
    with run.opt as opt:
        COMM.Barrier()
        assert not opt.should_stop()
        if RANK == 0:
            begin = time.monotonic()
            while not opt.should_stop():
                assert time.monotonic() - begin < 10
                time.sleep(0.001)
        run.backward()
        opt.step()
        assert opt.outcome is not None
        assert opt.outcome.late == (RANK == 0)
        COMM.Barrier()
        assert not opt.should_stop()


# ---- fastest-k -----------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["additive", "double"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_k_grows_as_algorithm_1_says(schedule: Any, transport: Any) -> None:
    """Gradients that change their sign with every version, on any rank and however many."""
    algorithm = wagma.FastestK(
        COMM, 1, step=1, thresh=1, burnin=4, schedule=schedule, transport=transport
    )
    run = Recorded(algorithm)
    ks: dict[int, int] = {}
    with run.opt as opt:
        while (version := opt.version) < 40:
            time.sleep(0.001 * ((version + RANK) % 3))
            ks[version] = algorithm.k
            assert opt.stats()["k"] == algorithm.k
            opt.zero_grad()
            (run.weights.sum() * (-1) ** (version // (1 + version // 20))).backward()
            opt.step()
            assert opt.outcome is not None
            assert len(opt.outcome.contributors) >= (0 if opt.outcome.late else ks[version])
    policy, before = AdaptiveK(1, SIZE, 1, 1, 4, schedule=schedule), None
    for version, update in enumerate(np.array(run.updates)):
        assert ks.get(version, policy.k) == policy.k
        policy.update(None if before is None else float(np.dot(before, update)))
        before = update
    assert (
        algorithm.k
        == policy.k
        == (SIZE if schedule == "additive" else 2 ** (SIZE.bit_length() - 1))
    )
    assert len(set(map(str, COMM.allgather(run.updates)))) == 1


@pytest.mark.parametrize("first", [1, SIZE])
def test_a_schedule_of_ones_own_sees_what_all_ranks_know(first: int) -> None:
    seen: list[Progress] = []

    def schedule(progress: Progress) -> int:
        seen.append(progress)
        return 1 + progress.version % SIZE

    algorithm = wagma.FastestK(COMM, first, schedule=schedule)
    run = Recorded(algorithm)
    with run.opt as opt:
        while opt.version < 12:
            time.sleep(0.001 * ((opt.version + RANK) % 3))
            run.backward()
            opt.step()
    assert [one.version for one in seen] == list(range(12))
    assert [one.k for one in seen[1:]] == [1 + version % SIZE for version in range(11)]
    assert seen[0].inner_product is None
    for (before, after), one in zip(pairwise(run.updates), seen[1:], strict=True):
        assert one.inner_product == pytest.approx(np.dot(before, after))
    assert all(before.seconds <= after.seconds + 0.5 for before, after in pairwise(seen))
    assert len(set(map(str, COMM.allgather(seen)))) == 1


def test_k_follows_the_switch_times() -> None:
    times = [0.1 * k for k in range(1, SIZE)]
    begin = time.monotonic()
    COMM.Barrier()  # no rank begins earlier
    algorithm = wagma.FastestK(COMM, 1, schedule="bound-optimal", switch_times=times)
    run = Recorded(algorithm)
    ks = []
    with run.opt as opt:
        while opt.version < 20 + 8 * SIZE:
            time.sleep(0.02)
            run.backward()
            opt.step()
            ks.append(algorithm.k)
            assert algorithm.k <= 1 + (time.monotonic() - begin) / 0.1
    assert ks == sorted(ks)
    assert ks[-1] == SIZE


def test_a_checkpoint_has_k_and_its_counts() -> None:
    def make() -> Recorded:
        return Recorded(wagma.FastestK(COMM, 1, thresh=0, burnin=2))

    def go_on(run: Recorded, last: int) -> None:
        while (version := run.opt.version) < last:
            run.opt.zero_grad()
            (run.weights.sum() * (-1) ** version).backward()
            run.opt.step()

    first, second = make(), make()
    with first.opt:
        go_on(first, 5)
        first.opt.synchronize()
        state = first.opt.state_dict()
        saved = state["wagma"]["state"]
    assert saved["policy"]["count_iter"] != 1 or saved["k"] > 1
    if RANK == SIZE - 1 > 0:  # it has saved at another version: all continue with rank 0's
        state["wagma"]["state"] = {**saved, "k": 1}
    with second.opt:
        second.opt.load_state_dict(state)
        go_on(second, 7)
        found = second.opt.state_dict()["wagma"]["state"]
        go_on(second, 30)
        assert second.opt.stats()["k"] == SIZE
    assert saved["k"] <= found["k"] <= SIZE
    assert len(set(map(str, COMM.allgather(second.updates)))) == 1


@several
def test_a_pending_gradient_is_in_the_checkpoint() -> None:
    """A rank that resumes with one offers it, as it was, before it computes another."""
    first, second = (Recorded(wagma.KAsync(COMM, k)) for k in (SIZE - 1, 1))
    with first.opt as opt:
        make_late(first)
        state = opt.state_dict()
        version, pending = opt.version, opt.pending
    assert pending == (RANK == 0)
    assert COMM.allgather(version) == [1] * SIZE
    with second.opt as opt:
        opt.load_state_dict(state)
        assert opt.version == version
        assert opt.pending == pending
        assert opt.stats()["k"] == SIZE - 1
        last = opt.version + 20
        while opt.version < last:
            if not opt.pending:  # not of rank 0, until its old one was taken
                time.sleep(0.005)
                second.opt.zero_grad()
                opt.weight = float(RANK > 0)
                second.backward()
            opt.step()
    taken = np.array(second.updates)[:, 0]
    assert (taken > 0).sum() == 1


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: wagma.KSync(COMM, 0), "k is 0: at least 1"),
        (lambda: wagma.KAsync(COMM, SIZE + 1), rf"k is {SIZE + 1}: at most {SIZE}"),
        (lambda: wagma.KSync(COMM, 1.5), "k is 1.5: an integer"),  # type: ignore[arg-type]
        (lambda: wagma.FastestK(COMM, SIZE, k_max=SIZE - 1), "k_max is"),
        (lambda: wagma.FastestK(COMM, 1, thresh=-1), "thresh"),
        (lambda: wagma.KSync(COMM, 1, on_nonfinite="drop"), "on_nonfinite='drop'"),  # type: ignore[arg-type]
        (lambda: wagma.FastestK(COMM, 1, schedule="triple"), "schedule='triple'"),  # type: ignore[arg-type]
        (lambda: wagma.FastestK(COMM, 1, schedule="bound-optimal"), "switch_times=None"),
        (
            lambda: wagma.FastestK(COMM, 1, schedule="bound-optimal", switch_times=[2, 1]),
            "ascending",
        ),
    ],
)
def test_wrong_arguments_are_refused_on_every_rank(
    make: Callable[[], wagma.Algorithm], words: str
) -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    with pytest.raises((ValueError, TypeError), match=words):
        wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), make())


@several
def test_other_arguments_on_another_rank_are_refused() -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    for made in (
        wagma.KSync(COMM, 1 + (RANK == 0)),
        wagma.FastestK(COMM, 1, burnin=RANK),
    ):
        with pytest.raises(MismatchError):
            wagma.DistributedOptimizer(torch.optim.SGD([weights], lr=0.1), made)


@several
def test_k_of_all_ranks_stays() -> None:
    algorithm = wagma.KSync(COMM, SIZE)
    run = Recorded(algorithm)
    with run.opt as opt:
        algorithm.k = SIZE
        with pytest.raises(ValueError, match=rf"made with all {SIZE} ranks"):
            algorithm.k = SIZE - 1
        run.backward()
        opt.step()
        assert algorithm.k == SIZE
    with pytest.raises(AttributeError, match="FastestK"):
        wagma.FastestK(COMM, SIZE).k = 1


@several
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_k_can_be_lowered_from_all_ranks(early: bool, transport: Any) -> None:
    """Set before the optimizer is made, or after; also when the collective is made again."""
    algorithm = wagma.KSync(COMM, SIZE - 1, transport=transport)
    if early:
        algorithm.k = SIZE
    run = Recorded(algorithm)
    with run.opt as opt:
        algorithm.k = SIZE
        for _ in range(3):
            run.backward()
            opt.step()
            assert opt.outcome is not None
            assert len(opt.outcome.contributors) == SIZE
        more = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        opt.add_param_group({"params": [more]})
        assert algorithm.k == SIZE
        algorithm.k = 1
        time.sleep(0.2 * (RANK == 0))
        run.backward()
        opt.step()
        assert opt.outcome is not None
        assert opt.outcome.late or RANK != 0
        opt.synchronize()


@several
def test_ranks_that_set_another_k_are_told() -> None:
    algorithm = wagma.KSync(COMM, 1)
    run = Recorded(algorithm)
    with pytest.raises(QuorumMismatchError, match=r"opt\.algorithm\.k") as caught, run.opt as opt:
        run.backward()
        opt.step()
        opt.synchronize()
        algorithm.k = 2 if RANK == 0 else 1
        for _ in range(50):
            run.backward()
            opt.step()
    assert "opt.join" not in str(caught.value)


KSYNC = (wagma.KSync, "all ranks have to set it for the same version")
FASTEST = (wagma.FastestK, "the schedule sets it, and has to be one function on all ranks")


@pytest.mark.skipif(SIZE < 3, reason="two ranks disagree, and a third is told")
@pytest.mark.parametrize(
    ("made", "transport", "call"),
    [
        (KSYNC, "shm", "step"),
        (KSYNC, "shm", "synchronize"),
        (KSYNC, "mpi", "step"),
        (KSYNC, "mpi", "synchronize"),
        (KSYNC, "mpi", "close"),
        (FASTEST, "shm", "step"),
    ],
)
def test_the_remedy_is_k_whatever_a_rank_calls(made: Any, transport: Any, call: str) -> None:
    """The last rank makes its call after the others have failed, and has not called with them."""
    kind, remedy = made
    algorithm = kind(COMM, 1, transport=transport)
    run = Recorded(algorithm)
    algorithm._change_k(SIZE - 1 - (RANK == 0))
    last = RANK == SIZE - 1
    if last:
        COMM.Barrier()
    else:
        call = "step"
    if call == "step":
        run.backward()
    with pytest.raises(QuorumMismatchError) as caught, run.opt as opt:
        getattr(opt, call)()
        opt.synchronize()
    if not last:
        COMM.Barrier()
    assert f"opt.algorithm.k: {remedy}" in str(caught.value)
    assert "opt.join" not in str(caught.value)


@pytest.mark.parametrize("kind", [wagma.KSync, wagma.KAsync, wagma.FastestK])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_is_no_part_of_an_update(kind: Any, value: float) -> None:
    run = Recorded(kind(COMM, SIZE, on_nonfinite="skip"))
    with run.opt as opt:
        for step in range(4):
            run.backward()
            if RANK == 0 and step == 1:
                assert run.weights.grad is not None
                run.weights.grad[0] = value
            opt.step()
        assert opt.stats()["nonfinite"] == (RANK == 0)
    means = [[1 / SIZE] * SIZE] * 4
    means[1] = [0.0] + [1 / (SIZE - 1)] * (SIZE - 1) if SIZE > 1 else []
    assert run.updates == pytest.approx(np.array([mean for mean in means if mean]))


@pytest.mark.parametrize("kind", [wagma.KSync, wagma.KAsync, wagma.FastestK])
def test_it_is_an_error_by_default(kind: Any) -> None:
    run = Recorded(kind(COMM, SIZE))
    error = FloatingPointError if RANK == 0 else PeerError
    with pytest.raises(error, match="parameter 0" if RANK == 0 else "rank 0"), run.opt as opt:
        run.backward()
        opt.step()
        run.backward()
        if RANK == 0:
            assert run.weights.grad is not None
            run.weights.grad[0] = torch.nan
        opt.step()
    assert len(run.updates) == 1


@several
def test_a_scaler_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    run = Recorded(wagma.KAsync(COMM, 1))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with run.opt as opt, caplog.at_level(logging.WARNING):
        while opt.version < 12:
            time.sleep(0.01 * (RANK == 0))
            if opt.pending:
                with pytest.raises(RuntimeError, match=r"opt\.step\(\) there"):
                    scaler.step(opt)
                opt.step()
                continue
            opt.zero_grad()
            scaler.scale(run.weights[RANK]).backward()
            scaler.step(opt)
            scaler.update()
        opt.synchronize()
    assert not [one for one in caplog.records if "opt.pending" in one.getMessage()]
    assert np.array(run.updates).sum(1) == pytest.approx(1.0)


def test_k_of_a_schedule_is_not_set_by_hand() -> None:
    with pytest.raises(AttributeError, match="schedule"):
        wagma.FastestK(COMM, 1).k = 2


def test_the_drawing_of_micro_batches_is_refused_around_k_async() -> None:
    weights = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(TypeError, match="KAsync"):
        wagma.DistributedOptimizer(
            torch.optim.SGD([weights], lr=0.1), wagma.DropCompute(wagma.KAsync(COMM, 1), 4)
        )


# ---- theory --------------------------------------------------------------------------------------


@pytest.mark.long
@several
@pytest.mark.parametrize("k", [1, 2])
def test_staleness_is_that_of_theory(k: int) -> None:
    if k >= SIZE or SIZE > 4:
        pytest.skip("for 2 to 4 ranks")
    run = Recorded(wagma.KAsync(COMM, k))
    random.seed(RANK)
    with run.opt as opt:
        while opt.version < 400:
            if not opt.pending:
                time.sleep(random.expovariate(1 / 0.04))
                run.backward()
            opt.step()
        stats = opt.stats()
    mean = COMM.allreduce(stats["staleness_mean"]) / SIZE
    assert mean == pytest.approx(SIZE / k - 1, rel=0.15)


def test_models_that_train_on_digits_are_alike_at_every_version() -> None:
    for made in (wagma.KSync(COMM, 1), wagma.KAsync(COMM, 1), wagma.FastestK(COMM, 1)):
        model = build_model()
        inner = torch.optim.Adam(model.parameters(), lr=0.02)
        with wagma.DistributedOptimizer(inner, made) as opt:
            while opt.version < 20:
                step_on(model, opt, batch(opt.version, RANK))
            assert len(set(on_all_ranks(values(model)))) == 1
