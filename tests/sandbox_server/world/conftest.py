"""The builds of the sandbox `world` of a file of tests, as the simulation keeps them: their moments are exact."""

from __future__ import annotations

import pytest

from tests.sandbox_server.planted_pipelines import runs_of


@pytest.fixture(scope="module")
def runs(world):
    return runs_of(world)


@pytest.fixture(scope="module")
def attempts(runs):
    return [(build, job) for build in runs for job in build.jobs]


@pytest.fixture(scope="module")
def plans(world):
    return world._db.pipelines.plans


@pytest.fixture(scope="module")
def queue_of(plans):
    return lambda build, job: (build.pipeline_key.split("/")[0], plans[build.plan].slots[job.step].step.queue)
