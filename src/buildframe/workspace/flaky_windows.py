"""List the flaky tests of the longest time that the service offers.

Does not know stores or widgets.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from buildframe.errors import Forbidden, NotFound, RateLimited, ServiceError, Unauthorized
from buildframe.spec.flaky_tests import DEFAULT_PERIOD, LONGEST_PERIOD, Period
from buildframe.workspace.workspace import Workspace

_NOT_ABOUT_OPTIONS = (Unauthorized, Forbidden, NotFound, RateLimited)


class FlakyTestLists:
    """
    Lists of flaky tests of one organization.

    A service that refuses the option `period` is requested without it, once for all lists.
    """

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._period: Period = LONGEST_PERIOD

    def list(self, suite: str, **query: Any) -> tuple[pd.DataFrame, Period]:
        """Return the flaky tests of a suite, and the period in which they flaked."""
        if self._period != DEFAULT_PERIOD:
            try:
                return self._ws.flaky_tests(suite, period=self._period, **query), self._period
            except ServiceError as why:
                if not 400 <= why.status < 500 or isinstance(why, _NOT_ABOUT_OPTIONS):
                    raise
            self._period = DEFAULT_PERIOD
        return self._ws.flaky_tests(suite, **query), self._period
