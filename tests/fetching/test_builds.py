"""Walks as a user asks for them, over HTTP: the same frames whoever reads, limits kept, words that are true."""

from __future__ import annotations

import datetime as dt
import random
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

NAMES = {table: [column.name for column in TABLES[table]] for table in ("builds", "jobs")}


def same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Same values in the same order, whenever they were fetched."""
    left, right = (frame.drop(columns="fetched_at", errors="ignore") for frame in (left, right))
    pd.testing.assert_frame_equal(left, right)


# --- the same frames whoever reads ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("workers", [4, 8])
def test_any_number_of_workers_brings_the_same(ci: Workspace, workers: int) -> None:
    alone, together = ci.history(workers=1), ci.history(workers=workers)
    for left, right in zip(alone, together, strict=True):
        assert len(left) > 300
        same(left, right)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_columns_chosen_hold_what_they_hold_among_all(ci: Workspace, workers: int) -> None:
    builds, jobs = ci.history(workers=workers)
    some, some_jobs = ["state", "pipeline", "number", "id"], ["branch", "id", "queue", "started_at"]
    chosen = ci.history(columns=some, job_columns=some_jobs, workers=workers)
    same(chosen.builds, builds[some])
    same(chosen.jobs, jobs[some_jobs])
    same(ci.builds(columns=["message"], workers=workers), builds[["message"]])
    same(ci.jobs(columns=["name"], workers=workers), jobs[["name"]])


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_newest_first_and_jobs_behind_their_builds(workers: int) -> None:
    with listing(evenly(700, every=30, jobs=1)) as service:
        builds, jobs = service.connected().history(workers=workers)
    assert list(builds["number"]) == list(range(700, 0, -1))
    assert list(jobs["id"]) == [f"j{n}-{i}" for n in range(700, 0, -1) for i in range(n % 3)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_newest_first_also_where_the_list_is_not(workers: int) -> None:
    """Each build stands up to 4 s from its place, so that pages overlap in time; the frame is in order all the same."""
    chance = random.Random(5)
    made = [build(n, seconds, n % 3) for n, seconds in enumerate(chance.choices(range(4000), k=600), 1)]
    made.sort(key=lambda each: after(0).us - bf_us(each) + chance.randrange(4_000_000))
    with listing(made) as service:
        builds, jobs = service.connected().history(workers=workers, overlap="5s")
        plain = service.connected().builds(workers=workers)
    assert sorted(builds["number"]) == list(range(1, 601))
    assert builds["created_at"].is_monotonic_decreasing
    assert list(jobs["build_id"].drop_duplicates()) == [id for id in builds["id"] if int(id[1:]) % 3]
    assert builds.attrs["complete"]
    assert len(plain) == 600 or not plain.attrs["complete"]


def bf_us(made: dict[str, Any]) -> int:
    return int(pd.Timestamp(made["created_at"]).value // 1000)


def test_builds_of_one_instant_come_as_the_service_lists_them() -> None:
    made = [build(9, 100), *(build(n, 50) for n in (3, 1, 4, 2, 8)), build(7, 10)]
    with listing(made) as service:
        assert list(service.connected().builds()["number"]) == [9, 3, 1, 4, 2, 8, 7]


@pytest.mark.parametrize(
    ("ask", "leaves_out_jobs", "leaves_out_pipeline"),
    [
        (lambda ws: ws.builds(), True, False),
        (lambda ws: ws.builds(columns=["id", "state"]), True, True),
        (lambda ws: ws.builds(columns=["id", "pipeline"]), True, True),
        (lambda ws: ws.builds(columns=["id"], extra={"p": "pipeline.name"}), True, False),
        (lambda ws: ws.builds(columns=["id"], raw=True), True, False),
        (lambda ws: ws.jobs(columns=["id"]), False, True),
        (lambda ws: ws.history(columns=["id"], job_columns=["id"]), False, True),
        (lambda ws: ws.history(), False, False),
    ],
)
@pytest.mark.filterwarnings("ignore:extra")
def test_what_is_not_wanted_is_not_asked_for(ask: Any, leaves_out_jobs: bool, leaves_out_pipeline: bool) -> None:
    with listing(evenly(250)) as service:
        ask(service.connected())
    for query in service.requests:
        is_count = query["per_page"] == "1"
        assert (query.get("exclude_jobs") == "true") is (leaves_out_jobs or is_count)
        assert (query.get("exclude_pipeline") == "true") is leaves_out_pipeline


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("created_from", [None, "3d"])
def test_no_request_more_than_allowed(workers: int, most: int, created_from: Any) -> None:
    """Every third request fails, and its repetition counts; so does the small one that tells the time for an age."""
    fails = says(b"{}", 503, Retry_After="0")
    ages = [build(n, 30 * 86400 - (3000 - n) * 20) for n in range(3000, 0, -1)]
    with listing(ages, lambda number, query: fails if number % 3 == 0 else None) as service:
        frame = service.connected().builds(max_requests=most, workers=workers, created_from=created_from)
    assert len(service.requests) == most == frame.attrs["requests"]
    assert (service.requests[0]["per_page"] == "1") is (created_from == "3d")
    assert frame.attrs["complete"] is False
    assert frame.attrs["why"] == f"max_requests={most} is used up"
    assert frame.attrs["left"]
    assert list(frame) == NAMES["builds"]


def test_a_limit_that_is_enough_is_no_limit() -> None:
    with listing(evenly(250)) as service:
        needed = service.connected().builds(workers=1).attrs["requests"]
        frame = service.connected().builds(max_requests=needed, workers=1, deadline="1h")
    assert len(frame) == 250
    assert frame.attrs["complete"] is True


@pytest.mark.parametrize(
    "terms",
    [
        {"workers": 0}, {"workers": -1}, {"workers": 1.5}, {"workers": True}, {"workers": "4"}, {"workers": None},
        {"workers": 65}, {"max_requests": 0}, {"max_requests": 2.0}, {"max_requests": False}, {"max_requests": "5"},
        {"overlap": "0s"}, {"overlap": dt.timedelta(milliseconds=999)}, {"overlap": 5}, {"overlap": None},
        {"overlap": "much"}, {"overlap": dt.timedelta(seconds=-5)}, {"overlap": "366d"}, {"overlap": "99999999999999w"},
        {"deadline": 5}, {"deadline": "soon"}, {"deadline": "2026-10-01"}, {"deadline": dt.timedelta(-1)},
        {"deadline": "99999999999999w"},
        {"columns": []}, {"columns": "id"}, {"columns": ["id", "id"]}, {"columns": ["colour"]}, {"columns": 5},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("listed", ["builds", "jobs", "history"])
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(terms: dict[str, Any], listed: str) -> None:
    with listing(evenly(3)) as service:
        [(name, value)] = terms.items()
        said = "is negative" if isinstance(value, dt.timedelta) and value < dt.timedelta(0) else name
        with pytest.raises(bf.BadInput, match=said):
            getattr(service.connected(), listed)(**terms, created_from="3d")
    assert service.requests == []


@pytest.mark.parametrize(
    ("unknown", "said"),
    [
        ({"job_columns": ["colour"]}, "jobs have no column 'colour'"),
        ({"worker": 4}, "worker"),
        ({"made": 5}, "made"),
    ],
)
def test_what_is_unknown_is_refused_by_name(unknown: dict[str, Any], said: str) -> None:
    with listing(evenly(3)) as service, pytest.raises(bf.BadInput, match=said):
        service.connected().history(**unknown)
    assert service.requests == []


# --- what is told of a walk -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
def test_attrs_tell_what_it_took(workers: int, tmp_path: Path) -> None:
    fails = says(b"{}", 503, Retry_After="0")
    with listing(evenly(900, jobs=1), lambda number, query: fails if number in (2, 5) else None) as service:
        builds, jobs = service.connected().history(workers=workers)
    for frame, table in ((builds, "builds"), (jobs, "jobs")):
        told = frame.attrs
        assert told["requests"] == len(service.requests)
        assert (told["retries"], told["table"]) == (2, table)
        assert told["waits"] >= 2
        assert 0 < told["waited_s"] < told["waits"] * 1000
        assert told["as_of"] == NOW.text()
        assert (told["complete"], told["why"], told["left"], told["note"]) == (True, None, [], None)
        assert told["source"].startswith(f"{service.url}/v2/organizations/acme/builds")
        assert bf.load(bf.save(tmp_path / f"{table}.parquet", frame)).attrs == told


def test_attrs_of_what_is_incomplete_survive_a_file(tmp_path: Path) -> None:
    with listing(evenly(900)) as service:
        frame = service.connected().builds(max_requests=2, created_from=after(3600))
    assert frame.attrs["left"]
    back = bf.load(bf.save(tmp_path / "builds.parquet", frame))
    assert back.attrs == frame.attrs
    pd.testing.assert_frame_equal(back, frame)


@pytest.mark.slow
def test_a_quota_that_was_waited_for_is_told() -> None:
    with bf.sandbox(builds=60, days=2, quota=Quota(user=2, window=1.0)) as ws:
        told = [ws.builds(state=state).attrs for state in ("passed", "failed", "canceled", "running", "scheduled")]
    assert sum(each["waits"] for each in told) >= 1
    assert sum(each["waited_s"] for each in told) > 0
    assert all(each["complete"] for each in told)
