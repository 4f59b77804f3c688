"""The oracle's verdict: which sums of mpi4py's tests were wagma's.

Every rank runs this: `mpiexec -n P python -m pytest tests/collectives/oracle`. Test results alone
would not do: they are the same if every sum is MPI's.
"""

from collections.abc import Generator

import pytest
from communicator import Communicator
from mpi4py import MPI

_labels: set[str] = set()  # of the classes that test sums
_terminals: list[pytest.TerminalReporter] = []


def _label(item: pytest.Item) -> str:
    kind = getattr(item, "cls", None)
    return "" if kind is None else f"{kind.__module__}.{kind.__name__}"


def _problems() -> list[str]:
    return Communicator.tally.problems(sorted(_labels))


def pytest_sessionstart(session: pytest.Session) -> None:
    _terminals.append(session.config.pluginmanager.getplugin("terminalreporter"))


def pytest_collection_finish(session: pytest.Session) -> None:
    _labels.update(_label(item) for item in session.items if item.name == "testAllreduce")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    Communicator.tally.label = _label(item)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Says at once why a test failed: what follows may be the watchdog."""
    if report.failed:
        _terminals[0].line(f"\n{report.longreprtext}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _problems():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tally = Communicator.tally
    size = MPI.COMM_WORLD.Get_size()
    terminalreporter.section("sums")
    for label in sorted(_labels):
        terminalreporter.line(f"{label}: {tally.describe(label)}")
    total, wagma = (sum(c[label] for label in _labels) for c in (tally.eligible, tally.wagma))
    terminalreporter.line(f"oracle, ranks {size}: {wagma} of {total} eligible calls went to wagma")
    for problem in _problems():
        terminalreporter.line(f"oracle FAILED, {problem}")
