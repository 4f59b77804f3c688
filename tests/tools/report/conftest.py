"""Fixtures for tests of reports."""

import pytest
import report_folders as made
from report_pages import Page, report_of

from wagma.report.page import Report


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Report]:
    """The page of everything, with the plots as pictures."""
    return report_of(made.everything(tmp_path_factory.mktemp("whole")), pictures=True)
