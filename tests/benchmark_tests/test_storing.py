"""The benchmark of the store uses a consistent year, and peers that read and write the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from buildframe.store.location import Location
from tests.benchmarks import storing, summaries, year

pytestmark = pytest.mark.long

A_MONTH = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Location:
    found = Location.of(tmp_path_factory.mktemp("year"), None)
    year.fill(found, A_MONTH, 1)
    return found


def copied(place: Location, folder: Path) -> Location:
    return Location.of(shutil.copytree(place.url, folder), None)


def test_ids_are_of_one_build_or_job_each_and_lead_to_one_another() -> None:
    weeks = list(year.weeks(A_MONTH, 2))
    builds, jobs = (pd.concat(frames, ignore_index=True) for frames in zip(*weeks, strict=True))
    assert len(jobs) == year.JOBS * len(builds) > 0
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    assert set(jobs["build_id"]) == set(builds["id"])
    assert set(jobs["retried_in_job_id"].dropna()) < set(jobs["id"])
    assert builds["created_at"].max() - builds["created_at"].min() > pd.Timedelta(days=year.DAYS)


def test_handwritten_code_reads_the_same(place: Location) -> None:
    for pair in storing.pairs(place).values():
        storing.check(pair)
        assert len(pair.ours())


def test_one_wrong_value_is_noticed(place: Location) -> None:
    ours, peer = storing.pairs(place)["a week of a pipeline, five columns"]
    with pytest.raises(AssertionError, match="run_time_s"):
        storing.check(
            summaries.Pair(ours, lambda: peer().assign(run_time_s=lambda result: result["run_time_s"] + 1e-3))
        )


def test_each_way_leaves_the_same_rows(place: Location, tmp_path: Path) -> None:
    for what, batch in (("new", storing.new(A_MONTH, 20)), ("reopened", storing.reopened(place, 20, 10))):
        ours = copied(place, tmp_path / what)
        storing.WAYS["the store"](ours, batch)
        for way in ("MERGE", "rewrite"):
            other = copied(place, tmp_path / f"{what}, {way}")
            storing.WAYS[way](other, batch)
            for name in ("builds", "jobs"):
                expected, rows = (storing.newest(one, name) for one in (ours, other))
                assert set(batch[name == "jobs"]["id"]) <= set(expected["id"])
                pd.testing.assert_frame_equal(rows[list(expected)], expected)


def test_reopened_builds_lie_in_as_many_days(place: Location) -> None:
    builds, jobs = storing.reopened(place, 12, 5)
    assert (len(builds), builds["created_at"].dt.date.nunique()) == (12, 5)
    assert len(jobs) == 12 * year.JOBS


def test_what_a_change_takes_is_measured_in_a_process_of_its_own(place: Location, tmp_path: Path) -> None:
    pd.to_pickle(tuple(storing.new(A_MONTH, 5)), tmp_path / "batch")
    before = storing.newest(place, "jobs")
    result = storing.in_a_copy("the store", place, str(tmp_path / "batch"))
    assert min(result.values()) > 0
    pd.testing.assert_frame_equal(storing.newest(place, "jobs"), before)
