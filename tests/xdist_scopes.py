"""Group tests that run in one process of pytest-xdist."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

_ALONE = re.compile(r"tests/(sandbox_server/http/)?test_(docs|architecture|schemathesis)\.py::")
"""Files with few, long tests that share nothing."""

_SPARK = re.compile("spark", re.IGNORECASE)
"""All tests with Spark run in one process, since each further one would start and warm up its own Java."""

_JUPYTER = "tests/jupyter/"
"""All tests of the folder run in one process, with one JupyterLab server, one browser and one loaded page."""


def scope_of(test: str) -> str:
    """Return the group of a test: all Spark or JupyterLab tests, the tests of its file, or the test alone."""
    if _SPARK.search(test):
        return "spark"
    if test.startswith(_JUPYTER):
        return "jupyter"
    return test if _ALONE.match(test) else test.partition("::")[0]


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
