"""For all tests: the modules beside this can be imported, and options are what tests say."""

import os

import pytest

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


def pytest_terminal_summary(config: pytest.Config) -> None:
    """Give the summary of pytest room for the reason behind the name of a test."""
    writer = config.get_terminal_writer()
    if not writer.hasmarkup:
        writer.fullwidth = 300
