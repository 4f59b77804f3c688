"""Checks that a training algorithm, yours or one of wagma's, behaves as an optimizer has to.

    def make(comm):
        return MyAlgorithm(comm, period=2)

    print(wagma.testing.check_algorithm(make))  # on the ranks of mpiexec or torchrun, or alone

docs/writing-an-algorithm.md says what is checked, and how an algorithm is written.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import SGD

from wagma.collectives import PeerError
from wagma.launch.environment import meeting_place
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.ranks import Ranks
from wagma.training.strategies.base import Algorithm

if TYPE_CHECKING:
    from wagma.collectives.meeting import Comm

__all__ = ["check_algorithm"]

STEPS, HALF = 12, 5
MANY = 400  # steps within which a rank has to hear of another one's failure
TIMEOUT_S = 120.0


def check_algorithm(
    make: Callable[[Any], Algorithm], comm: Comm = "auto", *, skip: Collection[str] = ()
) -> list[str]:
    """Check that optimizers with the algorithm behave; collective over `comm`.

    What is computed is compared on one rank, and on all ranks where the algorithm is not
    `wait_avoiding`, so that results do not depend on who comes when.

    Args:
        make: gives a fresh algorithm over the communicator that it is passed.
        comm: the ranks, as of every algorithm.
        skip: names of checks to leave out, such as "one rank" for an algorithm that is not the bare
            optimizer on one rank.

    Returns:
        The names of the checks that ran. Those on one rank cannot where several ranks are not
        MPI's.

    Raises:
        AssertionError: a check failed, on any rank; names the check, what was found and the remedy.
        ValueError: `skip` has a name that no check has.
    """
    if unknown := sorted(set(skip) - CHECKS.keys()):
        raise ValueError(f"skip={unknown[0]!r} is no check: they are {', '.join(CHECKS)}")
    ranks = Ranks(comm, timeout=TIMEOUT_S)
    everywhere = list(_places(make, comm, ranks))
    done = []
    for name, (check, remedy) in CHECKS.items():
        places = [place for place in everywhere if name not in skip and place.takes(name)]
        error: Exception | None = None
        try:
            for place in places:
                check(place)
        except Exception as caught:
            error = caught
        mine = None if error is None else f"{type(error).__name__}: {error}"
        follows = isinstance(error, PeerError)  # from another rank's error
        with ranks.meet() as meeting:
            said = meeting.exchange(lambda: (mine, follows), last=True)  # noqa: B023
        failed = sorted((late, rank, text) for rank, (text, late) in enumerate(said) if text)
        if failed:
            _, rank, text = failed[0]
            text = text.removeprefix("AssertionError: ")
            raise AssertionError(
                f"check {name!r} failed on rank {rank}: {text}. {remedy}"
            ) from error
        if places:
            done.append(name)
    return done


@dataclass(frozen=True)
class _Place:
    """Ranks to check on."""

    make: Callable[[], Algorithm]
    rank: int
    size: int

    def takes(self, name: str) -> bool:
        """Return whether the check is one for so many ranks."""
        return {"one rank": self.size == 1, "errors": self.size > 1}.get(name, True)

    def repeats(self) -> bool:
        """Return whether a run computes the same each time."""
        return self.size == 1 or not self.make().wait_avoiding


def _places(make: Callable[[Any], Algorithm], comm: Comm, ranks: Ranks) -> Iterator[_Place]:
    """Return one rank alone, where that can be had, and all ranks."""
    over_mpi = comm is not None and (comm != "auto" or meeting_place(os.environ) == "MPI")
    if ranks.size > 1 and over_mpi:
        from mpi4py import MPI

        yield _Place(lambda: make(MPI.COMM_SELF), 0, 1)
    yield _Place(lambda: make(comm), ranks.rank, ranks.size)


class _Run:
    """A small training; a context manager, as its optimizer."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.parameter = torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
        self.algorithm = place.make()
        self.inner = _inner(self.parameter)
        self.opt = DistributedOptimizer(self.inner, self.algorithm)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *error: Any) -> None:
        self.opt.__exit__(*error)

    def step(self, weight: float = 1.0, *, closure: bool = False) -> Any:
        """Make a step."""
        version = self.opt.version

        def evaluate() -> float:
            self.opt.zero_grad()
            return _backward(self.parameter, version, self.place.rank)

        self.opt.weight = weight
        if closure:
            return self.opt.step(evaluate)
        evaluate()
        return self.opt.step()

    def train(self, last: int, weight: float = 1.0, *, closure: bool = False) -> None:
        """Make steps until a version."""
        while self.opt.version < last:
            self.step(weight, closure=closure)

    def values(self) -> torch.Tensor:
        """Return the model."""
        return self.parameter.detach().clone()

    def is_alike(self) -> bool:
        """Return whether the model is the same on all ranks; collective."""
        digest = self.values().numpy().tobytes().hex()
        with self.algorithm.meet() as meeting:
            return len(set(meeting.exchange(lambda: digest, last=True))) == 1


def _inner(parameter: torch.Tensor) -> SGD:
    return SGD([parameter], lr=0.1, momentum=0.5)


def _backward(parameter: torch.Tensor, version: int, rank: int) -> float:
    """Compute gradients that differ between steps and ranks, and return the loss."""
    target = torch.sin(torch.arange(6, dtype=torch.float64) + version + 7 * rank)
    loss = (parameter - target).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def _demand(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def _demand_close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    difference = (found - expected).abs().max().item()
    _demand(difference <= 1e-9, f"{what} by up to {difference:.3g}")


# ---- checks ----------------------------------------------------------------------------------
def _check_one_rank(place: _Place) -> None:
    bare = torch.nn.Parameter(torch.linspace(-1, 1, 6, dtype=torch.float64))
    inner = _inner(bare)
    with _Run(place) as run:
        for version in range(STEPS):
            inner.zero_grad()
            _backward(bare, version, 0)
            inner.step()
        run.train(STEPS)
        _demand_close(run.values(), bare.detach(), "the model differs from the bare optimizer's")


def _check_closures(place: _Place) -> None:
    with _Run(place) as run:
        run.train(STEPS)
        plain = run.values()
    with _Run(place) as run:
        loss = run.step(closure=True)
        _demand(
            isinstance(loss, float | torch.Tensor), f"step(closure) returned {loss!r}, not the loss"
        )
        run.train(STEPS, closure=True)
        if place.repeats():
            _demand_close(run.values(), plain, "the model differs from that without closures")


def _check_resume(place: _Place) -> None:
    file = io.BytesIO()
    with _Run(place) as run:
        run.train(HALF)
        version = run.opt.version
        torch.save({"model": run.values(), "optimizer": run.opt.state_dict()}, file)
        run.train(STEPS)
        whole = run.values()
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    with _Run(place) as run:
        run.opt.load_state_dict(saved["optimizer"])
        with torch.no_grad():
            run.parameter.copy_(saved["model"])
        if place.repeats():
            _demand(run.opt.version == version, f"version {version} became {run.opt.version}")
        run.train(STEPS)
        if place.repeats():
            same = torch.equal(run.values(), whole)
            _demand(same, "the resumed run has another model than the one that went on")


def _check_join(place: _Place) -> None:
    steps = 3 + 2 * (place.rank % 3)
    with _Run(place) as run:
        with run.opt.join(steps) as last:
            run.train(min(steps, last))
        _demand(run.opt.version == last, f"version {run.opt.version} is not the last one, {last}")
        run.opt.synchronize()
        _demand(run.opt.version == last + 1, "synchronize() is not one version")
        _demand(run.is_alike(), "the ranks have different models after synchronize()")


def _check_late_parameters(place: _Place) -> None:
    with _Run(place) as run:
        run.train(STEPS)
        run.opt.synchronize()
        without = run.values()
    late = torch.nn.Parameter(torch.full((3,), 1.0 + place.rank, dtype=torch.float64))
    with _Run(place) as run:
        run.train(HALF)
        if not place.repeats():
            run.opt.synchronize()  # to be at one version
        before, version = run.values(), run.opt.version
        run.opt.add_param_group({"params": [late]})
        _demand(run.opt.version == version, f"version {version} became {run.opt.version}")
        _demand(torch.equal(run.values(), before), "adding a group changed the other parameters")
        while run.opt.version < STEPS:
            late.grad = None
            run.opt.zero_grad()
            _backward(run.parameter, run.opt.version, place.rank)
            late.grad = torch.ones_like(late)
            run.opt.step()
        run.opt.synchronize()
        if place.repeats():
            _demand_close(run.values(), without, "the old parameters differ from those without")
        _demand(run.is_alike(), "the ranks have different models after synchronize()")
        _demand(bool((late < 1).all()), f"the new parameter was not trained: {late.tolist()}")


def _takes_weights(place: _Place) -> bool:
    try:
        place.make().check_weight(2.0)
    except ValueError:
        return False
    return True


def _check_weights(place: _Place) -> None:
    if not _takes_weights(place):
        return
    with _Run(place) as run:
        for step in range(STEPS):
            run.step(float((step + place.rank) % 3))
            _demand(run.opt.weight == 1, f"the weight is {run.opt.weight} after a step")
        _demand(bool(run.values().isfinite().all()), "the model is not finite")
    with _Run(place) as run:
        before = run.values()
        for _ in range(3):
            run.parameter.grad = torch.full_like(run.parameter, torch.nan)
            run.opt.weight = 0.0
            run.opt.step()
        _demand_close(run.values(), before, "steps of weight 0 on all ranks change the model")


def _check_equal_weights(place: _Place) -> None:
    if not place.repeats() or not _takes_weights(place):
        return
    models = []
    for weight in (1.0, 2.0):
        with _Run(place) as run:
            run.train(STEPS, weight)
            models.append(run.values())
    _demand_close(models[1], models[0], "weights of 2 give another model than weights of 1")


def _check_errors(place: _Place) -> None:
    class FailedError(Exception):
        pass

    expected = FailedError if place.rank == 0 else PeerError
    steps = 0
    try:
        with _Run(place) as run:
            run.step()
            if place.rank == 0:
                raise FailedError
            for steps in range(MANY):  # noqa: B007
                run.step()
    except expected:
        return
    raise AssertionError(f"rank 0 failed, and {steps + 1} more steps of rank {place.rank} did not")


def _check_close(place: _Place) -> None:
    with _Run(place) as run:
        run.train(HALF)
    run.opt.close()
    run.opt.state_dict()
    _demand(bool(run.values().isfinite().all()), "the model is not finite after close()")
    try:
        run.step()
    except RuntimeError as error:
        _demand("closed" in str(error), f"step() after close() raised {error}")
        return
    raise AssertionError("step() after close() raised nothing")


CHECKS: dict[str, tuple[Callable[[_Place], None], str]] = {
    "one rank": (
        _check_one_rank,
        "One rank has nobody to average with: leave its gradient and its model what they are, or "
        "skip this check if the algorithm changes steps on purpose",
    ),
    "closures": (
        _check_closures,
        "before_step() has to return the loss that it is given, and step() what the inner one does",
    ),
    "resume": (
        _check_resume,
        "state() has to return all that later steps depend on, and load_state() to take it up",
    ),
    "join": (
        _check_join,
        "passive_step() has to make one version, and synchronize() to average all models",
    ),
    "late parameters": (
        _check_late_parameters,
        "connect() is called again, with the old parameters first and at the same places: what is "
        "kept per element has to grow there, and resume() to keep the count",
    ),
    "weights": (
        _check_weights,
        "Hand self.weight to the collective; a step in which nobody has any changes nothing",
    ),
    "equal weights": (
        _check_equal_weights,
        "Divide by the sum of the weights, or skip this check if the algorithm does not on purpose",
    ),
    "errors": (
        _check_errors,
        "__exit__() has to be told the error, so that the collectives of the other ranks end",
    ),
    "close": (
        _check_close,
        "check_open() has to raise RuntimeError, and release() to leave the model its own memory",
    ),
}
