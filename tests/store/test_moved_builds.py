"""`created_at` of a build can move over midnight: each build is stored once, on the day of its newest row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pyarrow.parquet as pq
import pytest

import buildframe as bf
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.store import Store
from buildframe.webhooks import WebhookFrames
from tests.store.batches import (
    BEGIN,
    PLAIN,
    Build,
    StoredContent,
    batch,
    builds_stored_by_day,
    expected,
    stored_content,
)
from tests.store.scripted_service import Service

STAYS = Build(2, 0, 0)
BEFORE = Build(1, 0, 0, "running", (0, 1, 2))
MOVED = Build(1, 5, 1, "passed", (0, 3))


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location.of(tmp_path / "store", None)


def commit(location: Location, *builds: Build, at: int, **more: Any) -> None:
    transactions.commit(location, PLAIN, batch(builds, at, **more))


def commit_as_before(location: Location, *builds: Build, at: int) -> None:
    with builds_stored_by_day():
        commit(location, *builds, at=at)


def days_of(store: Store, table: str) -> dict[str, set[str]]:
    """Return the days in the paths of the files that contain each build."""
    found: dict[str, set[str]] = {}
    for path in store.files(table):
        for id in pq.read_table(path, partitioning=None)["build_id" if table == "jobs" else "id"].to_pylist():
            found.setdefault(id, set()).add(path.split("day=")[1].split("/")[0])
    return found


@pytest.mark.parametrize("is_import", [False, True])
def test_a_commit_moves_a_build_and_its_jobs(location: Location, is_import: bool) -> None:
    commit(location, BEFORE, STAYS, at=1)
    store = Store(location.url)
    version = store.version
    commit(location, MOVED, at=6, is_import=is_import)
    assert stored_content(store) == expected([MOVED, STAYS])
    assert store.version == version + 1, "one commit of the builds table"
    for table in ("builds", "jobs"):
        assert days_of(store, table) == {"build-1": {"2026-10-02"}, "build-2": {"2026-10-01"}}
    assert set(store.jobs(columns=["build_id", "day"]).query("build_id == 'build-1'")["day"]) == {dt.date(2026, 10, 2)}
    assert store.builds(created_from="2026-10-01", created_to="2026-10-02")["id"].tolist() == ["build-2"]
    assert stored_content(Store(location.url, as_of=version)) == expected([BEFORE, STAYS])


def delivered(build: Build, jobs: tuple[int, ...]) -> WebhookFrames:
    rows = batch([Build(build.key, build.at, build.day, build.state, jobs)], build.at)
    return WebhookFrames(rows.builds, rows.jobs)


def test_a_delivery_moves_a_build_with_the_jobs_that_it_lacks(location: Location) -> None:
    commit(location, BEFORE, STAYS, at=1)
    transactions.receive(location, Retention(), delivered(MOVED, (0,)))
    store = Store(location.url)
    jobs = {"build-1/0 as of 5", "build-1/1 as of 0", "build-1/2 as of 0"}
    content: StoredContent = {**expected([STAYS]), "build-1": ("as of 5", False, tuple(sorted(jobs)))}
    assert stored_content(store) == content
    created = store.jobs(columns=["build_id", "build_created_at"]).groupby("build_id")["build_created_at"].unique()
    assert created["build-1"].tolist() == [BEGIN + dt.timedelta(days=1, seconds=1)]
    for table in ("builds", "jobs"):
        assert days_of(store, table)["build-1"] == {"2026-10-02"}


def test_an_older_delivery_of_another_day_changes_nothing(location: Location) -> None:
    commit(location, MOVED, STAYS, at=6)
    late = Build(1, 3, 0, "running", (0,))
    assert transactions.receive(location, Retention(), delivered(late, (0,))).builds == 0
    assert stored_content(Store(location.url)) == expected([MOVED, STAYS])


@pytest.fixture
def doubled(location: Location) -> Store:
    """A store in which the same build is on three days; the row of the second one was fetched last."""
    commit_as_before(location, BEFORE, STAYS, at=1)
    commit_as_before(location, Build(1, 2, 3, "running", (0, 1)), at=3)
    commit_as_before(location, MOVED, at=6)
    return Store(location.url)


def test_readers_count_the_newest_row_of_a_doubled_build(doubled: Store) -> None:
    assert stored_content(doubled) == expected([MOVED, STAYS])
    assert doubled.builds(created_from="2026-10-03", columns=["id"]).empty
    assert doubled.jobs(created_to="2026-10-02", columns=["build_id"])["build_id"].unique().tolist() == ["build-2"]
    for marker in ("", " -- copy"):  # read by DuckDB itself, and through Arrow
        counts = doubled.sql(f"SELECT (SELECT count(*) FROM builds) AS b, (SELECT count(*) FROM jobs) AS j{marker}")
        assert counts.iloc[0].tolist() == [2, 4]
    with pytest.warns(UserWarning, match="2 builds twice"):
        assert days_of(doubled, "builds")["build-1"] == {"2026-10-01", "2026-10-02", "2026-10-04"}
    assert stored_content(Store(doubled.url, as_of=doubled.version - 1)) == expected(
        [Build(1, 2, 3, "running", (0, 1)), STAYS]
    )


@pytest.mark.long
def test_a_commit_repairs_a_store_with_doubles_once(doubled: Store, location: Location) -> None:
    other = Build(3, 8, 4)
    commit(location, other, at=9)
    assert stored_content(doubled) == expected([MOVED, STAYS, other])
    for table in ("builds", "jobs"):
        assert days_of(doubled, table)["build-1"] == {"2026-10-02"}
    with mock.patch.object(transactions.duplicates, "repeated_ids", side_effect=AssertionError("ids read again")):
        commit(location, Build(3, 10, 4), at=11)
        assert len(doubled.builds()) == 3


@pytest.mark.long
def test_a_sync_moves_and_repairs(service: Service, ws: bf.Workspace, store: Store) -> None:
    build = service.add(1, "running", 2)
    service.add(2, "passed", 2)
    store.sync(ws, since="10d")
    service.later(hours=1)
    moved = pd.Timestamp(build["created_at"]) - pd.Timedelta("40h")
    build["created_at"] = moved.isoformat()
    assert store.sync(ws).complete
    builds = store.builds(columns=["id", "created_at", "gone_at"]).set_index("id")
    assert sorted(builds.index) == ["b1", "b2"]
    assert builds.loc["b1", "created_at"] == moved
    assert builds["gone_at"].isna().all()


@pytest.mark.long
def test_a_slug_selects_all_pipelines_that_had_it_last(service: Service, ws: bf.Workspace, store: Store) -> None:
    """A deleted pipeline and its successor of the same slug; a renamed pipeline is known by its new slug."""
    service.pipelines = {"p-web": "web", "p-old": "app"}
    for number in range(10):
        service.add(number, "passed", 2)
    service.add(10, "passed", 2, pipeline_id="p-old")
    store.sync(ws, since="10d")
    service.pipelines = {"p-new": "web", "p-old": "app-old", "p-app": "app"}
    service.later(hours=1)
    for number in range(11, 14):
        service.add(number, "passed", pipeline_id="p-new")
    service.add(14, "passed", pipeline_id="p-app")
    assert store.sync(ws).complete
    assert store.builds(pipeline="web")["pipeline_id"].value_counts().to_dict() == {"p-web": 10, "p-new": 3}
    assert store.jobs(pipeline="web")["pipeline_id"].value_counts().to_dict() == {"p-web": 10, "p-new": 3}
    assert store.builds(pipeline="p-web")["pipeline_id"].unique().tolist() == ["p-web"]
    assert store.builds(pipeline="app")["id"].tolist() == ["b14"]
    assert store.builds(pipeline="app-old")["id"].tolist() == ["b10"]


@pytest.mark.long
def test_a_pipeline_that_was_deleted_before_the_first_list_is_found_by_its_slug(
    service: Service, ws: bf.Workspace, store: Store
) -> None:
    service.add(1, "passed", 2)
    store.sync(ws.pipeline("web"), since="10d")
    service.pipelines = {"p-new": "web"}
    service.add(2, "passed", pipeline_id="p-new")
    store.sync(ws, since="10d")
    assert store.builds(pipeline="web")["id"].tolist() == ["b2", "b1"]
