"""Reading opens no files of other days, and loses no row by that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

import buildframe as bf
from buildframe.store import transactions
from buildframe.store.location import Location
from buildframe.store.retained_columns import Retention
from buildframe.store.transactions import SyncBatch
from tests.benchmarks import year

COLUMNS = ["id", "created_at"]


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


@pytest.mark.slow
@pytest.mark.parametrize("start", [None, "2026-10-14T00:00:00Z", "2026-10-14T11:30:00.000001Z"])
@pytest.mark.parametrize("end", [None, "2026-10-20T00:00:00Z", "2026-10-20T14:45:00Z", "2026-10-14T23:59:59Z"])
def test_a_range_has_the_rows_that_lie_in_it(place: Location, start: str | None, end: str | None) -> None:
    store = bf.Store(place.url)
    whole = store.builds(columns=COLUMNS)
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
