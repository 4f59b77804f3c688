"""The conformance checks: wagma's algorithms pass, and each finds the algorithm that breaks it."""

import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import torch
from mpi4py import MPI
from torch.optim import Optimizer

import wagma
from wagma.algorithms import Algorithm
from wagma.testing import CHECKS, check_algorithm

COMM = MPI.COMM_WORLD

torch.set_num_threads(1)


def plain(parameters: list[torch.nn.Parameter]) -> Optimizer:
    """DiLoCo is LocalSGD with it."""
    return torch.optim.SGD(parameters, lr=1.0)


PAGE = (Path(__file__).resolve().parents[3] / "docs/writing-an-algorithm.md").read_text()
EXAMPLE, CHECK = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

long = pytest.mark.long
PASSING: list[Any] = [
    pytest.param(lambda comm: wagma.LocalSGD(comm, sync_period=3), (), id="LocalSGD", marks=long),
    pytest.param(lambda comm: wagma.DiLoCo(comm, 3, plain), (), id="DiLoCo"),
    pytest.param(wagma.AllreduceSGD, (), id="AllreduceSGD", marks=long),
    pytest.param(wagma.WAGMA, (), id="WAGMA", marks=long),
    pytest.param(wagma.DPSGD, (), id="DPSGD", marks=long),
    pytest.param(wagma.SGP, (), id="SGP", marks=long),
    pytest.param(wagma.ADPSGD, (), id="ADPSGD", marks=long),
    pytest.param(wagma.EagerSGD, ("equal weights",), id="EagerSGD", marks=long),
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


class AveragesNothing(Base):
    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        self._local += 1


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


BROKEN: dict[str, Callable[..., Algorithm]] = {
    "one rank": ChangesSteps,
    "closures": DropsLoss,
    "resume": ForgetsState,
    "join": AveragesNothing,
    "late parameters": DoesNotGrow,
    "weights": DividesByWeight,
    "equal weights": MultipliesByWeight,
    "errors": HidesErrors,
    "close": StaysOpen,
}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    "name",
    [name if name in ("join", "weights") else pytest.param(name, marks=long) for name in CHECKS],
)
def test_it_finds_what_is_broken(name: str) -> None:
    skip = {"one rank"} - {name}
    with pytest.raises(AssertionError, match=f"^check '{name}' failed on rank "):
        check_algorithm(BROKEN[name], COMM, skip=skip)


def test_a_wrong_name() -> None:
    with pytest.raises(ValueError, match="skip='one' is no check: they are one rank, closures"):
        check_algorithm(wagma.LocalSGD, COMM, skip=["one"])


def test_the_documented_example_passes(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"comm": COMM}
    exec(EXAMPLE, names)
    exec(CHECK, names)
    left_out = {"one rank", *(["errors"] if COMM.size == 1 else [])}
    assert capsys.readouterr().out == f"{[name for name in CHECKS if name not in left_out]}\n"
    wrong = names["SlowMomentum"](COMM, period=0)
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    with pytest.raises(ValueError, match="period=0 must be 1 or more"):
        wagma.DistributedOptimizer(inner, wrong)


def test_the_hooks_are_all_listed() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    public = {name for name in vars(Algorithm) if not name.startswith("_")}
    own = {"attach", "reattach", "resume", "meet", "close", "check_open", "hint"}  # of the base
    values = {"wait_avoiding", "parameters", "collective", "version"}
    assert listed == public - own - values
