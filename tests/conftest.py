"""For all tests: which of them a run collects, how long one may take, and options as tests say."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import watchdog
from parts import launch_of

# They would override the options that tests set.
for _name in (
    "WAGMA_TRANSPORT",
    "WAGMA_STALL_WARNING",
    "WAGMA_REDO_AFTER",
    "WAGMA_SHM_LIMIT",
    "WAGMA_PROGRESS",
    "WAGMA_PROGRESS_CPU",
):
    os.environ.pop(_name, None)

# What tests have left behind must not be collected in forked ranks: the end of a process group of
# torch hangs there, where its threads are not.
os.register_at_fork(after_in_child=gc.freeze)

# Seconds after which a test hangs, by its launch, where the usual number is not right.
_WATCHDOG_S = {
    "oracle": 60.0,  # a rank that fails leaves a test early, and others may wait for it for ever
    "launch": 240.0,  # torchrun takes its time on a busy machine
    "training": 240.0,  # all algorithms on eight ranks, on a busy machine
    "slurm": 240.0,
    "hosts": 300.0,  # the longest test runs those of ranks
    "install": 900.0,  # pip compiles
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--transport", choices=("auto", "mpi"), default="auto")
    parser.addoption("--arrays", choices=("host", "gpu"), default="host")


def pytest_configure(config: pytest.Config) -> None:
    watchdog.keep_stderr()
    if config.getoption("--with-mpi", default=False):
        config.pluginmanager.import_plugin("on_ranks")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what this run cannot launch, unless it is named: it would be imported."""
    folder = collection_path.is_dir()
    files = list(collection_path.rglob("test_*.py")) if folder else [collection_path]
    launches = {launch_of(file) for file in files if file.match("test_*.py")}
    if config.getoption("--with-mpi", default=False):
        others = launches - {"mpi"}
    else:
        others = launches & {"mpi", "oracle", "transport"}
    return (bool(launches) and launches == others) or None


@pytest.fixture(autouse=True)
def watched(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the process of a test that hangs, with the stacks of its threads."""
    seconds = [_WATCHDOG_S.get(mark.name) for mark in request.node.iter_markers()]
    with watchdog.watched(next(filter(None, seconds), watchdog.WATCHDOG_S)):
        yield


def pytest_terminal_summary(config: pytest.Config) -> None:
    """Give the summary of pytest room for the reason behind the name of a test."""
    writer = config.get_terminal_writer()
    if not writer.hasmarkup:
        writer.fullwidth = 300
