"""The benchmarks use the same world each time, a server that lists correctly, and a comparison that finds errors."""

from __future__ import annotations

from typing import get_args

import msgspec
import pandas as pd
import pytest

import buildframe as bf
from buildframe import spec
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import protocol, response
from tests.benchmarks import agreement
from tests.benchmarks.server import Quota, Server, Settings
from tests.benchmarks.world import Rhythm, World

pytestmark = pytest.mark.long

DATE = {"date": "Sun, 01 Nov 2026 12:00:00 GMT"}
FETCHED_AT = pd.Timestamp("2026-11-01T12:00:00Z")


def page_of(world: World) -> bytes:
    return msgspec.json.encode(list(world.newest_first()))


def frames_of(page: bytes) -> tuple[pd.DataFrame, pd.DataFrame]:
    decoding = PageDecoder(spec.Build, ColumnSelection("builds"), ColumnSelection("jobs"))
    request = protocol.request_for(spec.list_builds, "acme")
    return decoding.frames([decoding.tables(decoding.read(request, response.Response(200, DATE, page)))])


def test_the_world_is_the_same_each_time_and_another_by_another_seed() -> None:
    page = page_of(World(30, 30))
    assert page == page_of(World(30, 30))
    assert page != page_of(World(30, 30, seed=2))


def test_a_page_reads_as_json_normalize_reads_it_in_all_columns() -> None:
    page = page_of(World(200, 30))
    assert b" UTC" in page
    builds, jobs = frames_of(page)
    assert agreement.differences(page, builds, jobs, FETCHED_AT) == []
    assert [column for column in (*builds, *jobs) if column in builds and builds[column].isna().all()] == []
    assert [column for column in jobs if jobs[column].isna().all()] == []


def test_wrong_values_are_noticed() -> None:
    page = page_of(World(10, 30))
    columns = ["exit_status", "agent_meta_data", "queue", "build_created_at", "soft_failed"]
    for column in columns:
        builds, jobs = frames_of(page)
        jobs[column] = jobs[column].mask(jobs.index == jobs[column].first_valid_index())
        assert agreement.differences(page, builds, jobs, FETCHED_AT) == [f"jobs.{column}"]


def test_the_server_lists_everything() -> None:
    for rhythm in get_args(Rhythm):
        world = World(730, 2, rhythm)
        documents = list(world.newest_first())
        middle = documents[365]["created_at"]
        with Server(Settings(world)) as server, bf.connect("acme", base_url=server.url, token="invented") as ci:
            builds, jobs = ci.history()
            early, late = ci.builds(created_to=middle), ci.builds(created_from=middle)
            result = server.counts()
        assert sorted(builds["id"]) == sorted(document["id"] for document in documents)
        assert sorted(jobs["id"]) == sorted(job["id"] for document in documents for job in document["jobs"])
        assert (len(late), len(early)) == (366, 364)
        assert sum(result.answered) >= 16
        assert result.refused == [0]


def test_a_window_follows_the_other_from_the_first_request_on() -> None:
    for rounds_up, reset in ((True, 7), (False, 6)):
        quota = Quota(2, 10.0, rounds_up)
        taken = [quota.take(now)[:2] for now in (100.0, 101.0, 109.9, 110.0)]
        assert taken == [(True, 1), (True, 0), (False, 0), (True, 1)]
        assert quota.take(113.5)[2] == reset
