"""The conformance checks: wagma's algorithms pass, and each finds the algorithm that breaks it."""

import re
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest
import torch
from documents import DOCS, blocks
from mpi4py import MPI
from stalls import patient_creation  # noqa: F401 (a fixture)
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm
from wagma.testing import CHECKS, check_algorithm, places
from wagma.training.strategies.ending import AgreedEnd
from wagma.training.strategies.membership import Membership

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD

torch.set_num_threads(1)


def plain(parameters: list[torch.nn.Parameter]) -> Optimizer:
    """DiLoCo is LocalSGD with it."""
    return torch.optim.SGD(parameters, lr=1.0)


PAGE = (DOCS / "writing-an-algorithm.md").read_text()
EXAMPLE, CHECK = blocks("writing-an-algorithm.md", "python")

long = pytest.mark.long
# What there is nothing to check of: weights of SGP, averaged gradients of what averages models.
NO_WEIGHTS, NO_GRADIENTS = {"weights", "equal weights"}, {"average_gradients"}
PASSING: list[Any] = [
    pytest.param(lambda comm: wagma.LocalSGD(comm, sync_period=3), (), id="LocalSGD", marks=long),
    pytest.param(lambda comm: wagma.DiLoCo(comm, 3, plain), (), id="DiLoCo"),
    pytest.param(wagma.AllreduceSGD, (), id="AllreduceSGD", marks=long),
    pytest.param(wagma.WAGMA, (), id="WAGMA", marks=long),
    pytest.param(wagma.Auto, (), id="Auto", marks=long),
    pytest.param(wagma.DPSGD, (), id="DPSGD", marks=long),
    pytest.param(wagma.SGP, (), id="SGP", marks=long),
    pytest.param(wagma.ADPSGD, (), id="ADPSGD", marks=long),
    pytest.param(wagma.EagerSGD, ("equal weights",), id="EagerSGD", marks=long),
    pytest.param(lambda comm: wagma.KSync(comm, -(-comm.size // 2)), (), id="KSync", marks=long),
    pytest.param(lambda comm: wagma.KAsync(comm, 1), (), id="KAsync", marks=long),
    pytest.param(
        lambda comm: wagma.FastestK(comm, 1, thresh=0, burnin=1), (), id="FastestK", marks=long
    ),
    pytest.param(
        lambda comm: wagma.DiLoCo(comm, 3, overlap=True), ("one rank",), id="overlap", marks=long
    ),
    pytest.param(
        lambda comm: wagma.DiLoCo(comm, 1, group_size=1), ("one rank",), id="groups", marks=long
    ),
]


@pytest.mark.parametrize(("make", "skip"), PASSING)
def test_it_passes(make: Callable[..., Algorithm], skip: tuple[str, ...]) -> None:
    left_out = {*skip, *(["errors"] if COMM.size == 1 else [])}
    left_out |= NO_WEIGHTS if make is wagma.SGP else set()
    left_out |= NO_GRADIENTS if make not in (wagma.AllreduceSGD, wagma.Auto) else set()
    assert set(check_algorithm(make, COMM, skip=skip)) == CHECKS.keys() - left_out


class Base(wagma.LocalSGD):
    """To be broken."""

    def __init__(self, comm: Any) -> None:
        super().__init__(comm, 3)


class ChangesSteps(Base):
    def after_step(self) -> None:
        self.parameters.flat.mul_(0.9)
        super().after_step()


class DropsLoss(Base):
    def before_step(self, loss: Any) -> None:  # noqa: ARG002
        return None


class ForgetsState(Base):
    """Every step is a little different from the one before, and that is not saved."""

    count = 0

    def after_step(self) -> None:
        self.count += 1
        self.parameters.flat.add_(1e-3 * self.count)
        super().after_step()


class ForgetsWeights(Base):
    def state(self) -> dict[str, Any]:
        return {}


class AveragesNothing(Base):
    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        self.count_versions(1)


class DoesNotGrow(Base):
    mean = torch.empty(0)

    def after_step(self) -> None:
        if not self.mean.numel():
            self.mean = torch.zeros_like(self.parameters.flat)
        self.mean.add_(self.parameters.flat)
        super().after_step()


class DividesByWeight(Base):
    def after_step(self) -> None:
        self.parameters.flat.mul_(
            torch.tensor(self.weight) / self.weight if self.weight else torch.nan
        )
        super().after_step()


class MultipliesByWeight(Base):
    def after_step(self) -> None:
        self.parameters.flat.mul_(self.weight or 1.0)
        super().after_step()


class AveragesNoGradients(wagma.AllreduceSGD):
    def average_gradients(self, scale: float = 1.0) -> None:
        pass


class SaysThatItTells(Base):
    """Its averages carry no wish to stop."""

    def synchronize(self, *, final: bool = True) -> None:
        wanted, self.stops.wanted = self.stops.wanted, False
        super().synchronize(final=final)
        self.stops.wanted = wanted


class HidesErrors(Base):
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(None, None, None)


class StaysOpen(wagma.LocalSGD):
    def __init__(self, comm: Any) -> None:
        super().__init__(comm, 4)  # a local step comes first

    def check_open(self, call: str) -> None:
        pass


class CannotBeMade(Base):
    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        if COMM.rank == 1:
            raise ZeroDivisionError("no algorithm")


class CannotConnect(Base):
    def connect(self, parameters: Any) -> Any:
        if COMM.rank == 1:
            raise ZeroDivisionError("no collective")
        return super().connect(parameters)


class StaysAway(Base):
    """A rank does not come to an average, and goes on."""

    def synchronize(self, *, final: bool = True) -> None:
        if self.size > 1 and self.rank == 1:
            self.count_versions(1)
        else:
            super().synchronize(final=final)


BROKEN: list[Any] = [
    pytest.param("one rank", ChangesSteps, marks=long),
    pytest.param("closures", DropsLoss, marks=long),
    pytest.param("resume", ForgetsState, marks=long),
    ("resume", ForgetsWeights),
    ("join", AveragesNothing),
    pytest.param("late parameters", DoesNotGrow, marks=long),
    ("weights", DividesByWeight),
    pytest.param("equal weights", MultipliesByWeight, marks=long),
    pytest.param("average_gradients", AveragesNoGradients, marks=long),
    pytest.param("stop", SaysThatItTells, marks=long),
    pytest.param("errors", HidesErrors, marks=long),
    pytest.param("close", StaysOpen, marks=long),
]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_it_finds_what_is_broken(name: str, broken: Callable[..., Algorithm]) -> None:
    skip = {"one rank"} - {name}
    where = r"(all ranks|ranks? \d[\d, -]*): "
    with pytest.raises(AssertionError, match=f"^check '{name}' failed on {where}"):
        check_algorithm(broken, COMM, skip=skip)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("broken", "what"),
    [(CannotBeMade, "algorithm"), pytest.param(CannotConnect, "collective", marks=long)],
)
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=long)])
def test_what_one_rank_cannot_make_is_told_to_all(
    broken: Callable[..., Algorithm], what: str, alone: bool
) -> None:
    def make(comm: Any) -> Algorithm:
        return broken(comm) if alone or comm is COMM else Base(comm)

    said = f"^check 'one rank' failed on rank 1: ZeroDivisionError: no {what}. A single rank"
    if not alone:
        said = f"^check 'closures' failed on rank 1: ZeroDivisionError: no {what}. before_step"
    with pytest.raises(AssertionError, match=said):
        check_algorithm(make, COMM)


@pytest.mark.long
@pytest.mark.mpi(min_size=2)
@pytest.mark.usefixtures("patient_creation")
def test_a_rank_that_does_not_come_is_waited_for_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "TIMEOUT_S", 3.0)
    # The rank whose time is over first ends the other's wait.
    said = r"^check 'join' failed on ranks? 0[-, 0-9]*: (Stall|Peer)Error"
    with pytest.raises(AssertionError, match=said):
        check_algorithm(StaysAway, COMM, skip=CHECKS.keys() - {"join"})


def test_a_wrong_name() -> None:
    with pytest.raises(ValueError, match="skip='one' is no check: they are one rank, closures"):
        check_algorithm(wagma.LocalSGD, COMM, skip=["one"])


def test_the_documented_example_passes(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"comm": COMM}
    exec(EXAMPLE, names)
    exec(CHECK, names)
    left_out = {"one rank", *NO_GRADIENTS, *(["errors"] if COMM.size == 1 else [])}
    assert capsys.readouterr().out == f"{[name for name in CHECKS if name not in left_out]}\n"
    wrong = names["SlowMomentum"](COMM, period=0)
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    with pytest.raises(ValueError, match="period=0 must be 1 or more"):
        wagma.DistributedOptimizer(inner, wrong)


def test_the_hooks_are_all_listed() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    public = {
        name
        for kind in (Algorithm, AgreedEnd, Membership)
        for name in vars(kind)
        if not name.startswith("_")
    }
    own = {"attach", "reattach", "serve", "resume", "meet", "close"}  # of the base
    own |= {"check_open", "hint", "options"}
    own |= {"request_stop", "watch_stops", "see_version"}
    called = {"count_versions"}  # by hooks
    values = {
        "carries_stops",
        "may_be_late",
        "unheard",
        "wait_avoiding",
        "joins",
        "default_weight",
        "plan",
        "pending",
        "parameters",
        "collective",
        "version",
    }
    assert listed == public - own - called - values
