"""DropCompute: micro-batches that end in their midst have never begun."""

from typing import Any

import pytest
import torch
from dropping import COMM, FEATURES, MOST, RANK, Clock, loss_of, model_of, sample

import wagma

pytestmark = [pytest.mark.mpi, pytest.mark.counts_ranks]


class Slow(torch.nn.Module):
    """Takes a second in the forward pass, or in the backward pass."""

    def __init__(self, clock: Clock, *, backward: bool = False) -> None:
        super().__init__()
        self.clock = clock
        self.backward = backward

    def wait(self, *_: object) -> None:
        self.clock.now += 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.backward:
            self.wait()
        elif x.requires_grad:
            x.register_hook(self.wait)
        return x


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("correction", ["none", "stochastic"])
def test_preempted_micro_batches_have_never_begun(
    correction: Any, where: str, clock: Clock
) -> None:
    """Gradients are those of the finished to the bit; buffers and random numbers, too."""

    def network() -> torch.nn.Sequential:
        torch.manual_seed(3)
        return torch.nn.Sequential(
            *(torch.nn.Linear(FEATURES, 4), torch.nn.BatchNorm1d(4), Slow(clock, backward=True)),
            *(torch.nn.Dropout(0.5), Slow(clock), torch.nn.Linear(4, 2), Slow(clock)),
            torch.nn.Identity(),
        ).double()

    model, other = network(), network()
    count = RANK % 3  # of 3 seconds each: rank 0 finishes none
    threshold = 3.0 * count + {"forward": 0.5, "backward": 2.5}[where]
    policy = wagma.DropCompute(
        wagma.AllreduceSGD(COMM), MOST, 9.0, correction=correction, preempt=True
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, policy, model=model) as opt:
        policy._in_force.seconds = threshold
        opt.zero_grad()
        torch.manual_seed(RANK)
        for batch in opt.micro_batches([sample(0, RANK, m) for m in range(MOST)]):
            with opt.micro_batch():
                loss_of(model, batch).backward()
        drawn = torch.rand(3)
        torch.manual_seed(RANK)
        for micro in range(count):
            loss_of(other, sample(0, RANK, micro)).backward()
        for one, same in zip(model.parameters(), other.parameters(), strict=True):
            assert (one.grad is None) == (same.grad is None) == (count == 0)
            assert one.grad is None or torch.equal(one.grad, same.grad)  # type: ignore[arg-type]
        assert all(map(torch.equal, model.buffers(), other.buffers()))
        torch.manual_seed(RANK)
        for micro in range(count):
            with torch.no_grad():
                other(sample(0, RANK, micro))
        assert torch.equal(torch.rand(3), drawn)
        opt.step()
        counts = COMM.allgather(count)
        assert opt.outcome is not None
        wanted = sum(counts) if correction == "stochastic" else sum(c > 0 for c in counts)
        assert opt.outcome.weight == pytest.approx(wanted, abs=1e-20)
        assert opt.stats()["drop_rate"] == (MOST - count) / MOST
        opt.zero_grad()
        with pytest.raises(RuntimeError, match="needs the loop's body in a block"):
            for _ in opt.micro_batches([1, 2]):
                pass
    assert not model[0]._forward_pre_hooks


def test_a_preempted_micro_batch_comes_again(clock: Clock) -> None:
    model = torch.nn.Sequential(model_of(), Slow(clock), torch.nn.Identity())
    policy = wagma.DropCompute(
        wagma.AllreduceSGD(COMM), 3, 2.0, preempt=True, compensation="resample",
        correction="stochastic",
    )  # fmt: skip
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, policy, model=model) as opt:
        numbers, done = iter(range(5)), []
        while not opt.epoch_done:
            opt.zero_grad()
            for number in opt.micro_batches(numbers):
                with opt.micro_batch():
                    loss_of(model, sample(0, RANK, number)).backward()
                    done.append(number)
            opt.step()
            assert opt.version < 20
        assert done == [0, 1, 2, 3, 4]
