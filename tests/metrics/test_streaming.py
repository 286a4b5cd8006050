"""Summaries of lazy frames of Polars in its streaming engine."""

from __future__ import annotations

import polars as pl
import pytest
from tests.metrics.engine_frames import OF_BUILDS, OF_JOBS, assert_same
from tests.metrics.random_frames import builds_of, jobs_of

from buildframe import metrics


@pytest.mark.parametrize("summary", OF_JOBS)
def test_of_jobs(summary: str) -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    with pl.Config(engine_affinity="streaming"):
        result = OF_JOBS[summary](pl.from_pandas(jobs).lazy())
    assert_same(result, OF_JOBS[summary](jobs))


@pytest.mark.parametrize("summary", OF_BUILDS)
def test_of_builds(summary: str) -> None:
    builds = metrics.with_seconds(builds_of("many"))
    with pl.Config(engine_affinity="streaming"):
        result = OF_BUILDS[summary](pl.from_pandas(builds).lazy())
    assert_same(result, OF_BUILDS[summary](builds))
