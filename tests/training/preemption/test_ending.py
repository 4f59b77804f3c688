"""One rank asks to stop: all stop after the same version, and nobody before."""

from collections.abc import Iterator

import pytest
import torch
from ending import CASES, SHORT, Case, Delays, check_alike, new_optimizer, train
from tiny import COMM, RANK, SIZE, mostly_long, on_all_ranks

from wagma.collectives import SyncAllreduce
from wagma.training.policies.dropcompute import MORE
from wagma.training.stopping import LEAST, had_samples

pytestmark = pytest.mark.mpi

LONG = pytest.mark.long
PHASES = 7  # more than the longest period of the cases and one


def end(case: Case, asker: int, when: int, delays: Delays | None) -> None:
    with new_optimizer(case.make(COMM)) as opt:
        opt.watch_stops()
        asked = train(opt, asker, when, delays)
        check_alike(opt, asked, asker, case)
        opt.synchronize()
        assert opt.stopping
        assert len(set(on_all_ranks(*opt.param_groups[0]["params"]))) == 1


def trials(seeds: range) -> Iterator[tuple[int, int, int]]:
    for seed in seeds:
        for when in range(PHASES):
            yield from ((asker, when, seed) for asker in range(SIZE))


@pytest.mark.parametrize("name", mostly_long(CASES, SHORT))
def test_all_stop_at_one_version(name: str) -> None:
    for asker, when, seed in list(trials(range(1)))[:: 3 * SIZE + 1]:
        end(CASES[name], asker, when, Delays(seed))


@LONG
@pytest.mark.parametrize("name", CASES)
def test_all_stop_at_one_version_in_every_phase(name: str) -> None:
    for asker, when, seed in list(trials(range(1, 4)))[:: max(1, SIZE - 1)]:
        end(CASES[name], asker, when, Delays(seed) if seed > 1 else None)


@pytest.mark.parametrize("name", ["AllreduceSGD", "KSync-1", "WAGMA", "ADPSGD", "SGP"])
def test_everybody_asks(name: str) -> None:
    """As when the job's scheduler sends a signal to all ranks, at versions that differ."""
    with new_optimizer(CASES[name].make(COMM)) as opt:
        opt.watch_stops()
        train(opt, RANK, 2 + RANK, Delays(5))
        ends = COMM.allgather((opt.stopping, opt.version))
        assert ends == [(True, ends[0][1])] * SIZE


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, *(pytest.param(x, marks=LONG) for x in (torch.bfloat16, torch.float32))],
)
@pytest.mark.parametrize("name", ["AllreduceSGD", "EagerSGD-solo", "KSync-half", "DiLoCo", "WAGMA"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    with new_optimizer(case.make(COMM), dtype) as opt:
        asked = train(opt, SIZE - 1, 1)
        check_alike(opt, asked, SIZE - 1, case)
        assert all(one.isfinite().all() for one in opt.param_groups[0]["params"])


def test_ranks_that_never_average_all_need_to_watch() -> None:
    with new_optimizer(CASES["ADPSGD"].make(COMM)) as opt:
        with pytest.raises(RuntimeError, match=r"call watch_stops\(\) on all ranks"):
            opt.request_stop()
        with pytest.raises((ValueError, TypeError), match="every"):
            opt.watch_stops(0 if RANK == 0 else None)
        if SIZE > 1:
            with pytest.raises(RuntimeError, match="alike on all ranks"):
                opt.watch_stops(3 + RANK)
        opt.watch_stops(3)
        asked = train(opt, 0, 0)
        check_alike(opt, asked, 0, Case(None, lambda _: 6))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_ranks_that_count_nothing(dtype: torch.dtype) -> None:
    """Collectives take them, and a mean is what it is without."""
    with SyncAllreduce(COMM, torch.zeros(3, dtype=dtype)) as collective:
        for weight in (LEAST, MORE):
            array = torch.full((3,), 7.0 + RANK, dtype=dtype)
            collective.allreduce(array, 3.0 if RANK == 0 else weight)
            assert array.tolist() == [7.0] * 3
            assert (collective.allreduce(array, weight).weight > 0) == (not had_samples(weight))
