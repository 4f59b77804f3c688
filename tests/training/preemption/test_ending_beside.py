"""A stop beside what else happens in a training: weights, overflows, `join`, closures, servers."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from ending import CASES, LIMIT, Case, Delays, backward, check_alike, exactly, new_optimizer, train
from tiny import COMM, RANK, SIZE, on_all_ranks

import wagma
from wagma.collectives.parameter_server.selection import METHODS

pytestmark = pytest.mark.mpi

ASKER = SIZE - 1
WHEN = 2


def values(opt: wagma.DistributedOptimizer) -> list[torch.Tensor]:
    return [one.detach().clone() for one in opt.param_groups[0]["params"]]


def one_stop(
    name: str, step: Callable[[wagma.DistributedOptimizer], object], *, asks: bool = True
) -> list[torch.Tensor]:
    """Train until the stop, or as far without one, and return the model."""
    case = CASES[name]
    with new_optimizer(case.make(COMM)) as opt:
        if asks:
            check_alike(opt, train(opt, ASKER, WHEN, step=step), ASKER, case)
        else:
            assert case.stops_at is not None
            while opt.version < case.stops_at(WHEN):
                step(opt)
        return values(opt)


def weighing(weights: Callable[[int], float]) -> Callable[[wagma.DistributedOptimizer], object]:
    def step(opt: wagma.DistributedOptimizer) -> None:
        opt.weight = weights(opt.version)
        backward(opt)
        opt.step()

    return step


AVERAGING_ALL = [
    *("AllreduceSGD", "AllreduceSGD-buckets", "KSync-all"),
    *("LocalSGD", "DiLoCo", "WAGMA-waiting"),
]


@pytest.mark.parametrize("name", AVERAGING_ALL)
@pytest.mark.parametrize("nobody", [False, True])
def test_a_rank_without_samples_is_heard(name: str, nobody: bool) -> None:
    """It counts nothing: the model is the one without a request, to the bit."""
    step = weighing(lambda version: float(not nobody and RANK != ASKER) * (1 + version))
    asked, without = one_stop(name, step), one_stop(name, step, asks=False)
    assert all(map(torch.equal, asked, without))


@pytest.mark.parametrize("name", ["EagerSGD-solo", "KSync-1", "KAsync", "FastestK"])
def test_a_rank_without_samples_is_heard_where_nobody_waits(name: str) -> None:
    one_stop(name, weighing(lambda _: float(RANK != ASKER)))


@pytest.mark.parametrize("name", AVERAGING_ALL)
def test_nothing_else_changes(name: str) -> None:
    step = weighing(lambda version: 1.0 + (version + RANK) % 3)
    assert all(map(torch.equal, one_stop(name, step), one_stop(name, step, asks=False)))


@pytest.mark.parametrize("averages", [False, True])
def test_overflow(averages: bool) -> None:
    """The rank that asks has no gradient to contribute."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(opt: wagma.DistributedOptimizer) -> None:
        opt.zero_grad()
        tensors = opt.param_groups[0]["params"]
        loss = sum((one**2).sum() for one in tensors)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call, arg-type]
        if RANK == ASKER and opt.version == WHEN:
            tensors[0].grad.fill_(torch.inf)
        if averages:
            opt.average_gradients(scaler)
        scaler.step(opt)
        scaler.update()

    one_stop("AllreduceSGD", step)


def test_averages_that_nobody_has_samples_for() -> None:
    """A scaler finds gradients all the same, and no step is made."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(opt: wagma.DistributedOptimizer) -> None:
        before = values(opt)
        scaler.scale((opt.param_groups[0]["params"][0] ** 2).sum()).backward()
        opt.weight = 0.0
        opt.average_gradients(scaler)
        scaler.step(opt)
        scaler.update()
        assert all(map(torch.equal, before, values(opt)))

    one_stop("AllreduceSGD", step)


def test_closures_that_are_evaluated_several_times() -> None:
    """The step goes on to its end on all ranks alike, each evaluation a version."""
    parameter = torch.nn.Parameter(torch.linspace(0, 1, 5).double())
    inner = torch.optim.LBFGS([parameter], max_iter=3)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(COMM)) as opt:

        def evaluate() -> float:
            opt.zero_grad()
            if RANK == ASKER and opt.version >= WHEN:
                opt.request_stop()
            loss = ((parameter - RANK) ** 4).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()

        while not opt.stopping and opt.version < LIMIT:
            opt.step(evaluate)
        ends = COMM.allgather((opt.stopping, opt.version))
        assert ends == [(True, ends[0][1])] * SIZE
        assert WHEN < ends[0][1] < LIMIT


@pytest.mark.parametrize("name", ["AllreduceSGD", "LocalSGD", "EagerSGD-solo", "KSync-1", "DPSGD"])
def test_join(name: str) -> None:
    """A rank whose data has run out asks, and those that have some hear it; and the other way.

    KSync has a window of 64 versions, and hears a rank that is always late every 65: the others
    have enough steps for that.
    """
    steps = [240, 3, 300, 270]
    for asker in range(min(SIZE, 2)):
        with new_optimizer(CASES[name].make(COMM)) as opt:
            opt.watch_stops()
            with opt.join(steps[RANK]) as last:
                for step in range(steps[RANK]):
                    if asker == RANK and step == 2:
                        opt.request_stop()
                    if opt.stopping or opt.version >= last:
                        break
                    backward(opt)
                    opt.step()
            ends = COMM.allgather((opt.stopping, opt.version))
            assert ends == [(True, ends[0][1])] * SIZE
            assert ends[0][1] < last


def test_it_survives_a_resume_and_new_parameters() -> None:
    """Watching goes on, with what nobody has seen yet; the count of versions is another one."""
    for name in ("DPSGD", "LocalSGD", "AllreduceSGD"):
        case = CASES[name]
        with new_optimizer(case.make(COMM)) as opt:
            opt.watch_stops()
            state = {**opt.state_dict()}
            state["wagma"] = {**state["wagma"], "version": 41}
            opt.load_state_dict(state)
            for _ in range(2):
                backward(opt)
                opt.step()
            opt.synchronize()
            late = torch.nn.Parameter(torch.ones(2).double())
            opt.add_param_group({"params": [late]})
            asked = train(opt, ASKER, 45)
            check_alike(opt, asked, ASKER, case)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("servers", [1, 2])
def test_parameter_server(method: Any, servers: int) -> None:
    if servers + 1 > SIZE:
        pytest.skip("too few ranks")
    learners = SIZE - servers
    for asker in range(SIZE):
        k, delays = -(-learners // 2), Delays(asker)
        with new_optimizer(wagma.ParameterServerSGD(COMM, method, k=k, servers=servers)) as opt:
            if asker == RANK and learners <= RANK:  # it is in its step until the others stop
                opt.request_stop()
            # Learners do not wait for one that is late: there is no version by which all stop.
            train(opt, asker if asker < learners else SIZE, WHEN, delays, limit=math.inf)
            end = opt.version
            opt.synchronize()
            ends = COMM.allgather(end)
            if method != "k-batch-async":  # whose gradients are sent before anybody is asked
                assert len(set(ends)) == 1
            assert len(set(on_all_ranks(*values(opt)))) == 1


def policies() -> dict[str, tuple[Callable[[], Any], Callable[[int], int]]]:
    forward = partial(wagma.WAGMA, COMM, sync_period=4, missed="fast-forward")
    return {
        "AllreduceSGD": (partial(wagma.AllreduceSGD, COMM), exactly(1)),
        "LocalSGD": (partial(wagma.LocalSGD, COMM, sync_period=3), exactly(3)),
        "DiLoCo": (partial(wagma.DiLoCo, COMM, sync_period=3), exactly(3)),
        "WAGMA": (forward, exactly(4)),
    }


@pytest.mark.parametrize("name", policies())
def test_dropped_computation(name: str) -> None:
    """Periods end first, also those whose rest is left out."""
    make, stops_at = policies()[name]

    def step(opt: wagma.DistributedOptimizer) -> None:
        opt.zero_grad()
        tensors = opt.param_groups[0]["params"]
        for _ in opt.micro_batches(range(3)):
            time.sleep(0.002 if RANK == 0 else 0)
            sum((one**2).sum() for one in tensors).backward()
        opt.step()

    for asker in range(SIZE):
        with new_optimizer(wagma.DropCompute(make(), 3, threshold=0.003)) as opt:
            asked = train(opt, asker, WHEN, step=step)
            check_alike(opt, asked, asker, Case(None, stops_at))
            opt.state_dict()


@pytest.mark.parametrize("make", [wagma.LocalSGD, wagma.WAGMA])
def test_models_that_count_nothing_stay_what_they_are(make: Any) -> None:
    """Also that of the rank that asks, which is heard by its weight."""
    with new_optimizer(make(COMM, sync_period=1)) as opt:
        (first, _) = opt.param_groups[0]["params"]
        with torch.no_grad():
            first.add_(RANK)
        before = values(opt)
        asked = train(opt, ASKER, WHEN, step=weighing(lambda _: 0.0))
        check_alike(opt, asked, ASKER, Case(make, exactly(1)))
        assert opt.outcome is not None
        assert all(map(torch.equal, before, values(opt)))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["KSync-1", "KAsync", "EagerSGD-solo"])
@pytest.mark.parametrize("watched", [False, True])
def test_a_rank_that_is_always_late_is_heard(name: str, watched: bool) -> None:
    """After a late gradient it goes on at once, without one, where nothing else tells it."""

    def step(opt: wagma.DistributedOptimizer) -> None:
        time.sleep(0.02 if RANK == ASKER else 0.001)
        if not opt.pending:
            backward(opt)
        opt.step()

    with new_optimizer(CASES[name].make(COMM)) as opt:
        if watched:
            opt.watch_stops()
        asked = train(opt, ASKER, WHEN, step=step)
        check_alike(opt, asked, ASKER, CASES[name])
        if watched:
            assert opt.version <= COMM.bcast(asked, ASKER) + 2 * opt.algorithm.stop_period()
        else:
            steps = COMM.bcast(opt.stats()["steps"], ASKER)
            assert steps <= WHEN + 1  # the first one after the request


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["KSync-1", "KAsync", "EagerSGD-solo", "FastestK"])
def test_a_late_rank_that_asks_at_the_end_makes_no_version_more_than_the_others(name: str) -> None:
    """They have left the loop, and are in synchronize()."""
    steps = 4
    with new_optimizer(CASES[name].make(COMM)) as opt:
        opt.watch_stops()
        while opt.version < steps and not opt.stopping:
            if not opt.pending:
                backward(opt)
            if RANK == ASKER:
                time.sleep(0.3)  # meanwhile the others make all their versions
                opt.request_stop()
            opt.step()
        opt.synchronize()
        ends = COMM.allgather(opt.version)
        assert ends == [ends[0]] * SIZE
