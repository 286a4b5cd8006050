"""Listings of thousands of builds from a sandbox that injects faults or allows few requests."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pandas as pd
import pytest
import tenacity

import buildframe as bf
from buildframe.http import retry
from buildframe.sandbox_server import Fault, Quota, Sandbox
from buildframe.sandbox_server.http.rate_limit import LimitStatus, RequestCounter
from buildframe.workspace import Workspace
from buildframe.workspace.build_queries import History
from tests import worlds

pytestmark = pytest.mark.long

FAULTS = (
    Fault("limited", route="list_builds", rate=0.05, seconds=1),
    Fault("status", route="list_builds", rate=0.05, status=500),
    Fault("status", route="list_builds", rate=0.05, status=502, html=True),
    Fault("status", route="list_builds", rate=0.05, status=503),
    Fault("reset", route="list_builds", rate=0.05),
    Fault("cut", route="list_builds", rate=0.05),
    Fault("garbage", route="list_builds", rate=0.05),
    Fault("latency", route="list_builds", rate=0.05, seconds=0.2),
)
"""The sandbox draws the fault of each request from its seed and the request's number. Three in ten requests fail,
so all twelve attempts of one request fail in 5 of 10 million cases."""

SEED = 2111  # within 25 requests each fault occurs, and at most 3 consecutive requests fail


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a month of builds, from which sandboxes start at once."""
    return Path(shutil.copy(worlds.make(), tmp_path_factory.mktemp("world")))


@contextmanager
def served(
    world: Path, faults: tuple[Fault, ...] = (), quota: Quota | None = None
) -> Iterator[tuple[Workspace, Sandbox]]:
    with (
        Sandbox(world, seed=SEED, faults=faults, quota=quota) as sandbox,
        bf.connect("acme", base_url=sandbox.url, token=sandbox.token()) as ws,
    ):
        yield ws, sandbox


@pytest.fixture(scope="module")
def undisturbed(world: Path) -> History:
    with served(world) as (ws, _):
        return ws.history(workers=1)


def happened(sandbox: Sandbox) -> list[int]:
    headers = {"Authorization": f"Bearer {sandbox.token(['sandbox'])}"}
    return [fault["happened"] for fault in httpx.get(f"{sandbox.url}/sandbox/faults", headers=headers).json()]


def same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Check that frames are equal, apart from URLs, which contain the sandbox's port."""
    others = [name for name in left if not str(name).endswith(("url", "triggered_build"))]
    pd.testing.assert_frame_equal(left[others], right[others])


@pytest.mark.parametrize("workers", [1, 8])
def test_builds_are_complete_despite_faults(
    world: Path, undisturbed: History, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_random(0.0, 0.1))
    with served(world, FAULTS) as (ws, sandbox):
        builds = ws.builds(workers=workers)
        counts = happened(sandbox)
    assert len(builds) > 2000
    same(builds, undisturbed.builds)
    assert builds.attrs["complete"]
    assert min(counts) > 0, dict(zip(FAULTS, counts, strict=True))
    assert max(counts[:-1]) <= builds.attrs["retries"] <= sum(counts[:-1]), "but for the latency"
    assert builds.attrs["requests"] - builds.attrs["retries"] >= math.ceil(len(builds) / 100)


def test_jobs_are_complete_despite_faults(world: Path, undisturbed: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_random(0.0, 0.1))
    with served(world, FAULTS) as (ws, sandbox):
        builds, jobs = ws.history()
        assert min(happened(sandbox)) > 0
    same(builds, undisturbed.builds)
    same(jobs, undisturbed.jobs)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count the requests over the quota by window, at the place where the service counts them."""
    found: Counter[int] = Counter()
    count = RequestCounter.count

    def counting(counter: RequestCounter, organization: str, user: str) -> tuple[LimitStatus, LimitStatus]:
        statuses = count(counter, organization, user)
        found[int(counter._window)] += any(status.current > status.limit for status in statuses)
        return statuses

    monkeypatch.setattr(RequestCounter, "count", counting)
    return found


@pytest.mark.parametrize("workers", [1, 4])
def test_a_quota_is_kept(world: Path, undisturbed: History, workers: int, refused: Counter[int]) -> None:
    wanted = undisturbed.builds.iloc[:1150]
    oldest = wanted["created_at"].iloc[-1]
    with served(world, quota=Quota(user=5, window=1.5)) as (ws, _):
        builds = ws.builds(workers=workers, created_from=oldest)
    same(builds, wanted)
    assert builds.attrs["complete"]
    assert max(refused.values()) <= workers, "only requests that were sent before the first refusal arrived"
    assert sum(refused.values()) == builds.attrs["retries"]
    assert builds.attrs["waits"] >= 1
    assert len(refused) >= 3, "windows"
    assert builds.attrs["requests"] - builds.attrs["retries"] <= 12 + 1, "it is not cut while the quota binds"
