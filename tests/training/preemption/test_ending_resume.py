"""Where all stop, state can be saved: a resumed run is one that was never stopped, to the bit."""

import copy

import pytest
import torch
from ending import CASES, backward, new_optimizer, train
from tiny import COMM, SIZE

import wagma

pytestmark = pytest.mark.mpi

EXACT = [
    *("AllreduceSGD", "AllreduceSGD-buckets", "KSync-all", "LocalSGD", "DiLoCo"),
    *("DiLoCo-overlap", "WAGMA-waiting", "DPSGD", "SGP"),
]
SHORT = ["AllreduceSGD-buckets", "SGP"]
LAST = 24


def finish(opt: wagma.DistributedOptimizer) -> list[torch.Tensor]:
    while opt.version < LAST:
        backward(opt)
        opt.step()
    opt.synchronize()
    return [one.detach().clone() for one in opt.param_groups[0]["params"]]


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in EXACT],
)
def test_a_resumed_run_is_the_one_that_went_on(name: str) -> None:
    make = CASES[name].make
    with new_optimizer(make(COMM)) as opt:
        whole = finish(opt)
    for asker, when in ((0, 1), (SIZE - 1, 5)):
        with new_optimizer(make(COMM)) as opt:
            opt.watch_stops()
            train(opt, asker, when)
            assert 0 < opt.version < LAST
            state = copy.deepcopy(opt.state_dict())
            model = [one.detach().clone() for one in opt.param_groups[0]["params"]]
        with new_optimizer(make(COMM)) as opt:
            opt.watch_stops()
            opt.load_state_dict(state)
            with torch.no_grad():
                for one, saved in zip(opt.param_groups[0]["params"], model, strict=True):
                    one.copy_(saved)
            assert not opt.stopping
            assert all(map(torch.equal, finish(opt), whole))
