"""The benchmark of sizes uses consistent days that differ, and reports what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import buildframe as bf
from buildframe.store.location import Location
from tests.benchmarks import large, scaling
from tests.benchmarks.year import JOBS, Frames

pytestmark = pytest.mark.long

A_DAY = 1_500


def day(back: int) -> Frames:
    return Frames(*(pd.concat(parts, ignore_index=True) for parts in zip(*large.day(A_DAY, back), strict=True)))


@pytest.fixture(scope="module")
def days() -> list[Frames]:
    return [day(back) for back in range(3)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Location:
    found = Location.of(tmp_path_factory.mktemp("large"), None)
    large.fill(found, 2, A_DAY)
    return found


def test_ids_are_of_one_build_or_job_each_and_lead_to_one_another(days: list[Frames]) -> None:
    builds, jobs = (pd.concat(frames, ignore_index=True) for frames in zip(*days, strict=True))
    assert len(jobs) == JOBS * len(builds) > 0
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    assert not builds.duplicated(["pipeline", "number"]).any()
    names = ["id", "number", "state", "created_at"]
    result = jobs[[f"build_{name}" for name in names]].set_axis(names, axis=1).assign(commit=jobs["commit"])
    pd.testing.assert_frame_equal(
        result.drop_duplicates(ignore_index=True), builds[[*names, "commit"]], check_like=True, check_dtype=False
    )
    assert set(jobs["retried_in_job_id"].dropna()) < set(jobs["id"])
    assert builds["commit"].nunique() < len(builds)


def test_each_day_has_as_many_jobs_and_only_the_last_has_open_builds(days: list[Frames]) -> None:
    for back, (builds, jobs) in enumerate(days):
        date = pd.Timestamp("2026-10-31", tz="UTC") - pd.Timedelta(days=back)
        assert (builds["created_at"].dt.floor("D") == date).all()
        is_over = builds["finished_at"].notna()
        assert (is_over.sum() * JOBS, is_over.all()) == (A_DAY, back > 0)
        assert (jobs["finished_at"].fillna(date) < jobs["fetched_at"]).all()


def test_days_differ_in_how_long_all_took_and_begin_at_other_moments(days: list[Frames]) -> None:
    (one, jobs), (other, of_other) = days[1:]
    assert not (one["created_at"] - other["created_at"]).eq(pd.Timedelta(days=1)).any()
    ran, of_other_ran = (frame["finished_at"] - frame["started_at"] for frame in (jobs, of_other))
    assert ran.notna().to_numpy().tolist() == of_other_ran.notna().to_numpy().tolist()
    assert (ran.to_numpy() == of_other_ran.to_numpy()).sum() < 5
    assert ran.max() < pd.Timedelta(seconds=900)


def test_a_store_has_all_rows_of_its_days(place: Location) -> None:
    frames = [day(back) for back in range(2)]
    for name in ("builds", "jobs"):
        ids = bf.Store(place.url).sql(f"SELECT id FROM {name}")["id"]
        assert sorted(ids) == sorted(pd.concat([getattr(frame, name) for frame in frames])["id"])


def test_what_a_summary_takes_is_measured_in_a_process_of_its_own(place: Location) -> None:
    for name in ("percentiles, by queue", "build_success_change"):
        result = scaling.watched("duckdb", place.url, name, 2)
        assert "failed" not in result, name
        assert min(result[what] for what in ("seconds", "cpu", "read", "peak", "rows")) > 0, name


def test_reads_of_the_store_are_measured(place: Location) -> None:
    store = bf.Store(place.url)
    assert {name: len(way(store)) > 0 for name, way in scaling.READS.items()} == dict.fromkeys(scaling.READS, True)


def test_failures_are_reported(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scaling.watched("duckdb", place.url, "nonsense", 2)["failed"] == "KeyError: 'nonsense'"
    assert scaling.watched("duckdb", place.url, "flips", 2, seconds=0)["failed"] == "more than 0 s"
    monkeypatch.setattr(scaling, "MOST", 2**20)
    assert scaling.watched("duckdb", place.url, "flips", 2)["failed"].endswith("of memory")


def test_results_are_kept_and_printed_with_their_growth(tmp_path: Path) -> None:
    path, result = tmp_path / "results.jsonl", {"seconds": 1.5, "cpu": 2, "peak": 300, "read": 10, "disk": 0, "rows": 4}
    scaling.add(path, ("duckdb", 1, "flips"), {"failed": "more than 900 s"})
    scaling.add(path, ("duckdb", 1, "flips"), result)
    scaling.add(path, ("duckdb", 10, "flips"), {**result, "seconds": 12, "peak": 330})
    scaling.add(path, ("duckdb", 10, "trend"), {"failed": "more than 12 GiB of memory"})
    assert len(path.read_text().splitlines()) == 4
    assert json.loads(path.read_text().splitlines()[-1])["name"] == "trend"
    printed = list(scaling.tables(scaling.kept(path)))
    assert printed[3] == "| flips | 1.50 s, 300 MiB | 12.00 s, 330 MiB | 8.0 | 1.1 | 2 | 10 | 0 | 4 |"
    assert printed[4] == "| trend |  | failed: more than 12 GiB of memory |  |  |  |  |  |  |"
