"""Which tests run in one process when several processes share the suite."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

_ALONE = re.compile(r"tests/(sandbox_server/http/)?test_(docs|architecture|schemathesis)\.py::")
"""Files of few, long tests that share nothing."""

_SPARK = re.compile(r"spark|tests/metrics/test_(group_map|derived_columns)\.py::|SparkSession", re.IGNORECASE)
"""All tests with Spark run in one process, since each further one would start and warm up its own Java."""


def scope_of(test: str) -> str:
    """Return what a test shares its process with: all of Spark, the other tests of its file, or nothing."""
    if _SPARK.search(test):
        return "spark"
    return test if _ALONE.match(test) else test.partition("::")[0]


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
