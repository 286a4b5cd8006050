"""A report that the tests of this folder only read."""

from __future__ import annotations

import pytest

from buildframe.report.content import Report
from buildframe.workspace import Workspace
from tests.report.reports import report_of


@pytest.fixture(scope="session")
def small_report(ci: Workspace) -> Report:
    """Return a report of the last three days of `ci`."""
    return report_of(ci, 3)
