"""The examples in the docstrings of public metrics run, and show what they print."""

from __future__ import annotations

import doctest
from typing import Any

import pandas as pd
import pytest

from buildframe import metrics
from tests import worlds

SHOWN = {"display.width": 120, "display.max_columns": 20, "display.max_rows": 20, "display.max_colwidth": 40}


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The globals of the examples: frames of a small sandbox whose world is the same each time."""
    with worlds.sandbox(seed=1, builds=150, days=7, until="2026-11-02T00:00:00Z") as ci:
        builds, jobs = ci.history(created_from="8d", include_retried_jobs=True)
        tests = ci.flaky_tests(suite="rspec")
        pipelines = ci.pipelines()
    read_at = tests["fetched_at"]
    history = tests.assign(
        suite="rspec", valid_from=read_at - pd.Timedelta("30D"), valid_to=read_at.mask(read_at.notna())
    )
    frames = {"builds": builds, "jobs": jobs, "pipelines": pipelines, "tests": tests, "history": history}
    return {"pd": pd, "metrics": metrics, **frames}


@pytest.mark.long
def test_examples_run(names: dict[str, Any]) -> None:
    """Each public function shows an example, whose output is the one that is printed."""
    parser, runner = (
        doctest.DocTestParser(),
        doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE),
    )
    report: list[str] = []
    without: list[str] = []
    with pd.option_context(*(one for option in SHOWN.items() for one in option)):
        for name in metrics.__all__:
            example = parser.get_doctest(getattr(metrics, name).__doc__, dict(names), name, None, None)
            without += [] if example.examples else [name]
            runner.run(example, out=report.append)
    assert (without, "".join(report)) == ([], "")
