"""Requests of newer lists: cursors, lists in brackets, the header with the version of the API; refused arguments."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

import buildframe as bf
from buildframe.errors import BadInput
from tests.conftest import Scripted, says
from tests.http.test_client import connected
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
WEB = "/v2/organizations/acme/pipelines/web"
UUID = "0190b3aa-0000-7000-8000-0000000000bb"
BUILD = {"id": "b", "number": 7, "branch": "main", "created_at": "2026-10-01T10:00:00Z", "commit": "c"}


def page(ids: list[str], next: str | None = None) -> Any:
    jobs = [{"id": id, "type": "script", "name": "Test", "state": "failed"} for id in ids]
    return says(json.dumps({"items": jobs, "links": {"self": "x", "next": next}}).encode())


def test_jobs_of_a_build_follow_the_cursors_and_have_the_columns_of_the_build(scripted: Start) -> None:
    server = scripted(
        says(json.dumps(BUILD).encode()), page(["j1", "j2"], f"{WEB}/builds/7/jobs?after=c2"), page(["j3"])
    )
    jobs = connected(server).pipeline("web").jobs_of(7, state="failed", extra={"of": "build.branch"})
    assert jobs[["id", "build_id", "build_number", "branch", "of"]].to_numpy().tolist() == [
        [id, "b", 7, "main", "main"] for id in ("j1", "j2", "j3")
    ]
    assert server.requests == [
        f"{WEB}/builds/7?exclude_jobs=true",
        f"{WEB}/builds/7/jobs?state%5B%5D=failed&include_retried_jobs=true&per_page=100",
        f"{WEB}/builds/7/jobs?after=c2",
    ]
    assert jobs.attrs["complete"] is True


def test_states_of_jobs_are_sent_in_brackets_and_unknown_ones_are_refused(scripted: Start) -> None:
    server = scripted(says(json.dumps(BUILD).encode()))
    web = connected(server).pipeline("web")
    web.build(7, job_states="failed", exclude_pipeline=True, include_test_engine=True)
    assert server.requests == [
        f"{WEB}/builds/7?include_retried_jobs=true&job_states%5B%5D=failed&exclude_pipeline=true&include_test_engine=true"
    ]
    with pytest.raises(BadInput, match=r"'pased'.*'passed'"):
        web.build(7, job_states=["pased"])  # type: ignore[list-item]
    with pytest.raises(BadInput, match=r"'pased'.*'passed'"):
        web.jobs_of(7, state="pased")  # type: ignore[arg-type]
    assert len(server.requests) == 1


def test_a_version_is_sent_as_a_header_with_every_page(scripted: Start) -> None:
    versions: list[Any] = ["2026-08-01", dt.date(2026, 8, 1)]
    for version in versions:
        first = says(b'[{"id":"a"}]', Link="</v2/organizations/acme/things?page=2>; rel=next")
        server = scripted(first, says(b'[{"id":"b"}]', Link=""))
        assert connected(server).get("/organizations/acme/things", version=version) == [{"id": "a"}, {"id": "b"}]
        assert len(server.headers) >= 2
        assert {headers["Buildkite-Version"] for headers in server.headers} == {"2026-08-01"}
        assert "version" not in server.requests[0]


def test_tests_ask_for_metrics_and_other_lists_for_no_version(scripted: Start) -> None:
    server = scripted(says(b"[]", Link=""))
    ci = connected(server)
    ci.tests("rspec", label="flaky", period="28days")
    ci.members()
    assert server.headers[0]["Buildkite-Version"] == "2026-08-01"
    assert "Buildkite-Version" not in server.headers[1]
    assert server.requests[0].startswith(
        "/v2/analytics/organizations/acme/suites/rspec/tests?label=flaky&period=28days"
    )


def test_a_version_that_is_not_a_date_is_refused(scripted: Start) -> None:
    server = scripted(says(b"[]"))
    wrong = ["2026-8-1", "2026-02-30", "", "latest", "2026-08-01\r\nX: y"]
    cases = [(version, "not a version of the API") for version in wrong]
    for method in (connected(server).get, connected(server).table):
        assert wrong_refusals(cases, lambda one, method=method: method("/organizations/acme/things", version=one)) == {}
    assert server.requests == []


ROW = {"organization": "acme", "pipeline": "web", "build_number": 7, "id": UUID}
JOB_URL = f"{WEB}/builds/7/jobs/{UUID}"


def test_a_job_is_retried_by_a_row_a_record_or_a_url(scripted: Start) -> None:
    server = scripted(says(b'{"id":"new","state":"scheduled"}'))
    url = server.url + JOB_URL
    jobs: list[Any] = [ROW, bf.spec.Job(id=UUID, log_url=f"{url}/log"), url]
    assert [connected(server).retry_job(job).id for job in jobs] == ["new"] * 3
    assert (server.methods, server.requests) == (["PUT"] * 3, [f"{JOB_URL}/retry"] * 3)


def test_a_retry_of_something_else_sends_nothing(scripted: Start) -> None:
    server = scripted(says(b'{"id":"new"}'))
    cases: list[tuple[Any, str]] = [
        (ROW | {"organization": "globex"}, "belongs to the pipeline globex/web, not to acme"),
        ({"id": UUID}, "does not say which build"),
        ("https://example.com" + JOB_URL, "not the API URL of a job"),
        (UUID, "not the API URL of a job"),
        (ROW | {"id": "x"}, "UUID"),
    ]
    assert wrong_refusals(cases, connected(server).retry_job) == {}
    assert server.requests == []
