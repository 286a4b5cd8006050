"""Listings of builds and jobs over HTTP: equal frames for any number of workers, limits, and metadata."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe.sandbox_server import Quota
from buildframe.spec import TABLES
from buildframe.workspace import Workspace
from tests.conftest import says
from tests.listing import NOW, after, build, evenly, listing
from tests.refusals import wrong_refusals

NAMES = {table: [column.name for column in TABLES[table]] for table in ("builds", "jobs")}


def same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Check that values and their order are equal, apart from `fetched_at`."""
    left, right = (frame.drop(columns="fetched_at", errors="ignore") for frame in (left, right))
    pd.testing.assert_frame_equal(left, right)


# --- equal frames for any number of workers ---------------------------------------------------------------------------


def test_any_number_of_workers_returns_equal_frames(ci: Workspace) -> None:
    alone, together = ci.history(workers=1), ci.history(workers=8)
    for left, right in zip(alone, together, strict=True):
        assert len(left) > 300
        same(left, right)


def test_selected_columns_equal_those_of_a_full_listing(ci: Workspace) -> None:
    builds, jobs = ci.history(workers=4)
    some, some_jobs = ["state", "pipeline", "number", "id"], ["branch", "id", "queue", "started_at"]
    chosen = ci.history(columns=some, job_columns=some_jobs, workers=4)
    same(chosen.builds, builds[some])
    same(chosen.jobs, jobs[some_jobs])
    same(ci.builds(columns=["message"], workers=1), builds[["message"]])
    same(ci.jobs(columns=["name"], workers=1), jobs[["name"]])


@pytest.mark.parametrize("workers", [1, 8])
def test_builds_are_newest_first_and_jobs_follow_their_builds(workers: int) -> None:
    with listing(evenly(700, every=30, jobs=1)) as service:
        builds, jobs = service.connected().history(workers=workers)
    assert list(builds["number"]) == list(range(700, 0, -1))
    assert list(jobs["id"]) == [f"j{n}-{i}" for n in range(700, 0, -1) for i in range(n % 3)]


@pytest.mark.parametrize("workers", [1, 4])
def test_builds_are_newest_first_if_the_list_is_out_of_order(workers: int) -> None:
    """Each build is listed up to 4 s from its place, so pages overlap in time. The frame is in order nevertheless."""
    chance = random.Random(5)
    documents = [build(n, seconds, n % 3) for n, seconds in enumerate(chance.choices(range(4000), k=600), 1)]
    documents.sort(key=lambda each: after(0).us - bf_us(each) + chance.randrange(4_000_000))
    with listing(documents) as service:
        builds, jobs = service.connected().history(workers=workers, overlap="5s")
        plain = service.connected().builds(workers=workers)
    assert sorted(builds["number"]) == list(range(1, 601))
    assert builds["created_at"].is_monotonic_decreasing
    assert list(jobs["build_id"].drop_duplicates()) == [id for id in builds["id"] if int(id[1:]) % 3]
    assert builds.attrs["complete"]
    assert len(plain) == 600 or not plain.attrs["complete"]


def bf_us(document: dict[str, Any]) -> int:
    return int(pd.Timestamp(document["created_at"]).value // 1000)


def test_builds_of_one_timestamp_keep_the_order_of_the_service() -> None:
    documents = [build(9, 100), *(build(n, 50) for n in (3, 1, 4, 2, 8)), build(7, 10)]
    with listing(documents) as service:
        assert list(service.connected().builds()["number"]) == [9, 3, 1, 4, 2, 8, 7]


@pytest.mark.filterwarnings("ignore:extra")
def test_jobs_and_pipelines_are_excluded_if_no_column_needs_them() -> None:
    calls: list[tuple[Callable[[Workspace], Any], bool, bool]] = [
        (lambda ws: ws.builds(), True, False),
        (lambda ws: ws.builds(columns=["id", "state"]), True, True),
        (lambda ws: ws.builds(columns=["id", "pipeline"]), True, True),
        (lambda ws: ws.builds(columns=["id"], extra={"p": "pipeline.name"}), True, False),
        (lambda ws: ws.builds(columns=["id"], raw=True), True, False),
        (lambda ws: ws.jobs(columns=["id"]), False, True),
        (lambda ws: ws.history(columns=["id"], job_columns=["id"]), False, True),
        (lambda ws: ws.history(), False, False),
    ]
    for number, (call, excludes_jobs, excludes_pipeline) in enumerate(calls):
        with listing(evenly(120)) as service:
            call(service.connected())
        for query in service.requests:
            is_count = query["per_page"] == "1"
            assert (query.get("exclude_jobs") == "true") is (excludes_jobs or is_count), number
            assert (query.get("exclude_pipeline") == "true") is excludes_pipeline, number


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "most", "created_from"), [(1, 1, "3d"), (1, 5, None), (4, 1, None), (4, 2, "3d"), (4, 5, "3d")]
)
def test_no_request_more_than_allowed(workers: int, most: int, created_from: Any) -> None:
    """Every third request fails. Retries count, and so does the request for the service's time if an age is given."""
    fails = says(b"{}", 503, Retry_After="0")
    ages = [build(n, 30 * 86400 - (1500 - n) * 20) for n in range(1500, 0, -1)]
    with listing(ages, lambda number, query: fails if number % 3 == 0 else None) as service:
        frame = service.connected().builds(max_requests=most, workers=workers, created_from=created_from)
    assert len(service.requests) == most == frame.attrs["requests"]
    assert (service.requests[0]["per_page"] == "1") is (created_from == "3d")
    assert frame.attrs["complete"] is False
    assert frame.attrs["why"] == f"max_requests={most} is used up"
    assert frame.attrs["left"]
    assert list(frame) == NAMES["builds"]


def test_a_sufficient_limit_leaves_a_listing_complete() -> None:
    with listing(evenly(250)) as service:
        needed = service.connected().builds(workers=1).attrs["requests"]
        frame = service.connected().builds(max_requests=needed, workers=1, deadline="1h")
    assert len(frame) == 250
    assert frame.attrs["complete"] is True


def test_invalid_options_are_refused_before_anything_is_sent() -> None:
    wrong: dict[str, list[Any]] = {
        "workers": [0, -1, 1.5, True, "4", None, 65],
        "max_requests": [0, 2.0, False, "5"],
        "overlap": ["0s", dt.timedelta(milliseconds=999), 5, None, "much", "366d", "99999999999999w"],
        "deadline": [5, "soon", "2026-10-01", "99999999999999w"],
        "columns": [[], "id", ["id", "id"], ["color"], 5],
    }
    cases: list[tuple[dict[str, Any], str]] = [({name: one}, name) for name, values in wrong.items() for one in values]
    cases += [({name: dt.timedelta(-1)}, "is negative") for name in ("overlap", "deadline")]
    with listing(evenly(3)) as service:
        ws: Any = service.connected()
        for listed in (ws.builds, ws.jobs, ws.history):
            assert wrong_refusals(cases, lambda one, listed=listed: listed(**one, created_from="3d")) == {}
        unknown: list[tuple[dict[str, Any], str]] = [
            ({"job_columns": ["color"]}, "job_columns: jobs have no column 'color'"),
            ({"worker": 4}, "worker"),
            ({"made": 5}, "made"),
        ]
        assert wrong_refusals(unknown, lambda one: ws.history(**one)) == {}
    assert service.requests == []


# --- metadata of a listing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
def test_attrs_report_requests_retries_and_waits(workers: int, tmp_path: Path) -> None:
    fails = says(b"{}", 503, Retry_After="0")
    with listing(evenly(900, jobs=1), lambda number, query: fails if number in (2, 5) else None) as service:
        builds, jobs = service.connected().history(workers=workers)
    for frame, table in ((builds, "builds"), (jobs, "jobs")):
        attrs = frame.attrs
        assert attrs["requests"] == len(service.requests)
        assert (attrs["retries"], attrs["table"]) == (2, table)
        assert attrs["waits"] >= 2
        assert 0 < attrs["waited_s"] < attrs["waits"] * 1000
        assert attrs["as_of"] == NOW.text()
        assert (attrs["complete"], attrs["why"], attrs["left"], attrs["note"]) == (True, None, [], None)
        assert attrs["source"].startswith(f"{service.url}/v2/organizations/acme/builds")
        assert bf.load(bf.save(tmp_path / f"{table}.parquet", frame)).attrs == attrs


def test_attrs_of_an_incomplete_frame_are_saved_and_loaded(tmp_path: Path) -> None:
    with listing(evenly(900)) as service:
        frame = service.connected().builds(max_requests=2, created_from=after(3600))
    assert frame.attrs["left"]
    back = bf.load(bf.save(tmp_path / "builds.parquet", frame))
    assert back.attrs == frame.attrs
    pd.testing.assert_frame_equal(back, frame)


@pytest.mark.long
def test_attrs_report_the_waits_for_a_quota() -> None:
    with bf.sandbox(builds=60, days=2, quota=Quota(user=2, window=1.0)) as ws:
        attrs = [ws.builds(state=state).attrs for state in ("passed", "failed", "canceled", "running", "scheduled")]
    assert sum(each["waits"] for each in attrs) >= 1
    assert sum(each["waited_s"] for each in attrs) > 0
    assert all(each["complete"] for each in attrs)
