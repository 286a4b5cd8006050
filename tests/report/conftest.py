"""A report that the tests of this folder only read."""

from __future__ import annotations

import pytest

from buildframe.report.content import Report
from tests import worlds
from tests.report.reports import report_of


@pytest.fixture(scope="session")
def small_report(request: pytest.FixtureRequest) -> Report:
    """Return a report of the last three days of `ci`, which one process of this run makes."""
    return worlds.remember("small report", lambda: report_of(request.getfixturevalue("ci"), 3))
