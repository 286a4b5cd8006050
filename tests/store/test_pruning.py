"""Reads and commits open no files that cannot contain the rows, and lose no row by that."""

from __future__ import annotations

import functools
import itertools
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import buildframe as bf
from buildframe import webhooks
from buildframe.store import delta, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.transactions import SyncBatch
from tests.benchmarks import busy_day, receiving, year

pytestmark = pytest.mark.long

COLUMNS = ["id", "created_at"]
TABLES = ("builds", "jobs")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Location:
    """Four weeks, and a build of which no time is known."""
    found = Location.of(tmp_path_factory.mktemp("weeks"), None)
    year.fill(found, 60, 1)
    builds, jobs = year.month(60)
    of_it = jobs[jobs["build_id"] == builds["id"].iloc[0]]
    timeless = builds.head(1).assign(id="timeless", created_at=lambda rows: rows["created_at"].shift(len(rows)))
    of_it = of_it.assign(
        id=[f"timeless-{n}" for n in range(len(of_it))],
        build_id="timeless",
        build_created_at=lambda rows: rows["build_created_at"].shift(len(rows)),
    )
    transactions.commit(found, Retention(), SyncBatch(timeless, of_it, year.as_of(builds)))
    return found


STARTS = (None, "2026-10-14T00:00:00Z", "2026-10-14T11:30:00.000001Z")
ENDS = (None, "2026-10-20T00:00:00Z", "2026-10-20T14:45:00Z", "2026-10-14T23:59:59Z")


def test_a_range_has_the_rows_that_lie_in_it(place: Location) -> None:
    store = bf.Store(place.url)
    whole = store.builds(columns=COLUMNS)
    for start, end in itertools.product(STARTS, ENDS):
        lies = pd.Series(True, whole.index)
        lies &= True if start is None else (whole["created_at"] >= pd.Timestamp(start)).fillna(False)
        lies &= True if end is None else (whole["created_at"] < pd.Timestamp(end)).fillna(False)
        found = store.builds(created_from=start, created_to=end, columns=COLUMNS)
        assert 0 < len(found) <= len(whole)
        pd.testing.assert_frame_equal(found, whole[lies].reset_index(drop=True))


def test_the_first_and_the_last_build_bound_a_range(place: Location) -> None:
    store = bf.Store(place.url)
    created = store.builds(columns=COLUMNS)["created_at"].dropna().sort_values(ignore_index=True)
    found = store.builds(created_from=created[20], created_to=created[30], columns=COLUMNS)
    assert sorted(found["created_at"]) == created[20:30].tolist()


def test_what_has_no_time_is_in_no_range_but_in_the_whole(place: Location) -> None:
    store = bf.Store(place.url)
    assert "timeless" in set(store.builds()["id"])
    assert (store.jobs()["build_id"] == "timeless").sum() == year.JOBS
    assert "timeless" not in set(store.builds(created_from="2000-01-01T00:00:00Z")["id"])
    assert "timeless" not in set(store.builds(created_to="2100-01-01T00:00:00Z")["id"])


def test_files_of_other_days_are_not_opened(place: Location, tmp_path: Path) -> None:
    copy = shutil.copytree(place.url, tmp_path / "copy")
    week = {"created_from": "2026-10-10T00:00:00Z", "created_to": "2026-10-16T23:00:00Z"}
    before = bf.Store(copy).jobs(**week)
    for path in bf.Store(copy).files("jobs"):
        if not "day=2026-10-10" <= path.split("/")[-2] <= "day=2026-10-16":
            open(path, "w").close()
    pd.testing.assert_frame_equal(bf.Store(copy).jobs(**week), before)


def test_commits_read_no_file_without_the_changed_builds(tmp_path: Path) -> None:
    """Ids of builds begin with the time of creation. A process opens a file once for the range of its ids."""
    place, hours = Location.of(tmp_path / "hours", None), 3
    busy_day.fill(place, 60, hours)
    store = bf.Store(place.url)
    events = [webhooks.parse(body) for body in receiving.bodies(store, builds=5, of_each=2)]
    older = {name: sorted(store.files(name), key=lambda path: path.split("/")[-1])[: hours - 1] for name in TABLES}
    before = store.jobs(columns=["id"])
    assert store.receive(events[:5]).jobs == 5
    kept = {path: Path(path).read_bytes() for paths in older.values() for path in paths}
    for path in kept:
        open(path, "w").close()
    assert store.receive(events[5:]).jobs == 5
    for path, data in kept.items():
        Path(path).write_bytes(data)
    jobs = store.jobs(columns=["id", "state"]).set_index("id")["state"]
    assert jobs.index.is_unique
    assert set(jobs.index) == set(before["id"])
    assert (jobs[[event.job.id for event in events]] == "passed").all()


@pytest.mark.parametrize("statistics", [True, False])
def test_rows_are_found_with_and_without_ranges_in_the_footers(tmp_path: Path, statistics: bool) -> None:
    place = Location.of(tmp_path / "store", None)
    with pytest.MonkeyPatch.context() as patch:
        if not statistics:
            patch.setattr(delta.pq, "write_table", functools.partial(pq.write_table, write_statistics=False))
        busy_day.fill(place, 60, 3)
    table = TableVersion.at(place, "jobs")
    assert table is not None
    whole = table.dataset().to_table()
    for build in (whole["build_id"][0], whole["build_id"][-1], pa.scalar("0")):
        ids = pa.array([build.as_py()], pa.string())
        expected = whole.filter(pc.is_in(whole["build_id"], ids))
        assert table.read_rows([str(busy_day.DAY.date()), "2026-10-30"], "build_id", ids).equals(expected)
        for without_rows in ([None], []):
            assert (
                table.read_rows(without_rows, "build_id", ids).num_rows == table.read_days(without_rows).num_rows == 0
            )
