"""Lists, options and leniencies beyond the API document: values manually from the service's public pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from buildframe.sandbox_server import Sandbox
from tests.golden.http_service import ALL_SCOPES

ACME = "/organizations/acme"
SUITES = "/analytics/organizations/acme/suites"
BUILD = {"commit": "HEAD", "branch": "main"}
Body = dict[str, Any]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with Sandbox(builds=200, days=6, seed=3) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token(ALL_SCOPES)}"}
        with httpx.Client(base_url=f"{sandbox.url}/v2", headers=headers, timeout=30) as client:
            yield client


@pytest.fixture(scope="module")
def failed(http: httpx.Client) -> Body:
    """A build with a job that failed, was not retried, and is not the only one."""
    builds = http.get(f"{ACME}/builds", params={"state": "failed", "per_page": 100}).json()
    return next(
        build for build in builds if len(build["jobs"]) > 4 and any(is_final_failure(job) for job in build["jobs"])
    )


def is_final_failure(job: Body) -> bool:
    return job["type"] == "script" and job["state"] == "failed" and not job["retried"]


# --- jobs of a build


def test_cursors_lead_forward_and_back_over_all_attempts(http: httpx.Client, failed: Body) -> None:
    expected = [job["id"] for job in http.get(failed["url"], params={"include_retried_jobs": "true"}).json()["jobs"]]
    page = http.get(f"{failed['url']}/jobs", params={"per_page": 2}).json()
    assert set(page["links"]) == {"self", "next"}
    seen = [job["id"] for job in page["items"]]
    while "next" in page["links"]:
        page = http.get(page["links"]["next"]).json()
        assert [job["id"] for job in http.get(page["links"]["prev"]).json()["items"]] == seen[-2:]
        seen += [job["id"] for job in page["items"]]
    assert seen == expected
    assert set(page["links"]) == {"self", "prev", "first"}
    assert [job["id"] for job in http.get(page["links"]["first"]).json()["items"]] == expected[:2]


def test_jobs_are_filtered_by_state_and_unknown_states_and_cursors_are_a_400(http: httpx.Client, failed: Body) -> None:
    params = {"state[]": ["failed", "timed_out"], "include_retried_jobs": "false"}
    items = http.get(f"{failed['url']}/jobs", params=params).json()["items"]
    expected = [job["id"] for job in failed["jobs"] if job.get("state") in ("failed", "timed_out")]
    assert [job["id"] for job in items] == expected
    assert expected
    for wrong in ({"state[]": "finished"}, {"after": "x"}, {"after": "x", "before": "y"}):
        assert http.get(f"{failed['url']}/jobs", params=wrong).status_code == 400


def test_a_retry_returns_the_new_attempt_and_the_old_one_names_who_retried_it(http: httpx.Client, failed: Body) -> None:
    old = next(job for job in failed["jobs"] if is_final_failure(job))
    url = f"{failed['url']}/jobs/{old['id']}"
    new = http.put(f"{url}/retry").json()
    assert new["id"] != old["id"]
    assert new["retry_source"] == {"job_id": old["id"], "retry_type": "manual"}
    before = http.get(url).json()
    assert (before["retried"], before["retried_in_job_id"]) == (True, new["id"])
    assert (
        before["retried_by"]["name"] == http.post(f"{ACME}/pipelines/web/builds", json=BUILD).json()["creator"]["name"]
    )
    assert http.put(f"{url}/retry").status_code == 400


# --- options of a build


def test_options_of_one_build(http: httpx.Client, failed: Body) -> None:
    bare = http.get(failed["url"], params={"exclude_jobs": "true", "exclude_pipeline": "true"}).json()
    assert bare.keys() == failed.keys() - {"jobs", "pipeline"}
    some = http.get(failed["url"], params={"job_states[]": ["passed"]}).json()["jobs"]
    every = http.get(failed["url"]).json()["jobs"]
    assert some == [job for job in every if job.get("state") == "passed"]
    assert some


def test_the_counts_of_states_are_those_of_the_jobs(http: httpx.Client) -> None:
    build = http.get(f"{ACME}/builds", params={"state": "passed"}).json()[0]
    states = [job["state"] for job in build["jobs"] if "state" in job]
    assert build["job_state_counts"] == {state: states.count(state) for state in states}


def test_test_engine_data_names_a_run_that_exists(http: httpx.Client) -> None:
    run = http.get(f"{SUITES}/rspec/runs").json()[0]
    builds = http.get(f"{ACME}/builds", params={"per_page": 100, "state[]": ["passed", "failed"]}).json()
    build = next(build for build in builds if build["id"] == run["build_id"])
    found = http.get(build["url"], params={"include_test_engine": "true"}).json()["test_engine"]["runs"]
    assert [(one["id"], one["suite"]["slug"]) for one in found] == [(run["id"], "rspec")]
    assert "test_engine" not in http.get(build["url"]).json()


# --- annotations and tests


def test_annotations_of_failed_builds_name_the_jobs_that_failed(http: httpx.Client) -> None:
    builds = http.get(f"{ACME}/builds", params={"state": "failed", "per_page": 100}).json()
    annotations = {build["id"]: http.get(f"{build['url']}/annotations").json() for build in builds}
    with_errors = [build for build in builds if any(one["style"] == "error" for one in annotations[build["id"]])]
    assert len(builds) / 2 < len(with_errors) <= len(builds)
    for build in with_errors:
        of_jobs = {one["job_id"] for one in annotations[build["id"]] if one["scope"] == "job"}
        broken = [job for job in build["jobs"] if job.get("state") in ("failed", "timed_out")]
        assert of_jobs <= {job["id"] for job in broken if not job["soft_failed"]}


def test_metrics_of_tests_add_up_and_need_the_version(http: httpx.Client) -> None:
    requested = {"Buildkite-Version": "2026-08-01"}
    tests = http.get(f"{SUITES}/rspec/tests", params={"per_page": 100}, headers=requested).json()
    assert tests
    for test in tests:
        passed, failures = (test["executions_count_by_result"][name] for name in ("passed", "failed"))
        assert passed + failures == test["executions_count"]
        assert test["reliability"] == pytest.approx(passed / (passed + failures), abs=1e-4)
        assert test["duration_sum"] == pytest.approx(test["duration_avg"] * test["executions_count"], rel=0.1)
        assert test["duration_min"] <= test["duration_avg"] <= test["duration_max"]
    for older in ({}, {"Buildkite-Version": "2026-07-31"}, {"Buildkite-Version": ""}):
        plain = http.get(f"{SUITES}/rspec/tests", headers=older).json()[0]
        assert plain.keys() == {"id", "url", "web_url", "scope", "name", "location", "file_name", "labels"}
    refused = http.get(f"{SUITES}/rspec/tests", headers={"Buildkite-Version": "01.08.2026"})
    assert (refused.status_code, refused.json()) == (400, {"message": "Buildkite-Version must be in format YYYY-MM-DD"})


def test_tests_are_filtered_and_a_longer_period_has_more_executions(http: httpx.Client) -> None:
    def listed(**params: str) -> list[Body]:
        headers = {"Buildkite-Version": "2026-08-01"}
        response = http.get(f"{SUITES}/rspec/tests", params={"per_page": "100", **params}, headers=headers)
        tests = list(response.json())
        while "next" in response.links:
            response = http.get(response.links["next"]["url"], headers=headers)
            tests += response.json()
        return tests

    every, flaky = listed(), listed(label="flaky")
    assert [test["id"] for test in flaky] == [test["id"] for test in every if test["labels"] == ["flaky"]]
    assert 0 < len(flaky) < len(every)
    assert listed(state="muted") == listed(branch="no-such-branch") == []
    day = {test["id"]: test["executions_count"] for test in listed(period="1day")}
    assert all(day.get(test["id"], 0) < test["executions_count"] for test in every)


# --- what the service reads differently than it is documented


def test_an_empty_author_is_the_user_of_the_token(http: httpx.Client) -> None:
    urls = f"{ACME}/pipelines/web/builds"
    default, empty = (http.post(urls, json=BUILD | more).json() for more in ({}, {"author": {}}))
    assert empty["author"] == default["author"] == {key: default["creator"][key] for key in ("name", "email")}


def test_texts_are_read_as_numbers_and_booleans(http: httpx.Client) -> None:
    build = http.post(
        f"{ACME}/pipelines/web/builds",
        json=BUILD | {"pull_request_id": "5", "clean_checkout": "true", "ignore_pipeline_branch_filters": "0"},
    )
    assert (build.status_code, build.json()["pull_request"]["id"]) == (201, "5")
    for wrong in ({"pull_request_id": "five"}, {"clean_checkout": "maybe"}, {"pull_request_id": "5.5"}):
        assert http.post(f"{ACME}/pipelines/web/builds", json=BUILD | wrong).status_code == 422


def test_agent_rules_stay_as_they_were_written(http: httpx.Client) -> None:
    rules = [["queue=default"], ["os=linux", "queue=docker"], ["queue=docker", "os=linux"], ["os=linux"], []]
    steps = [
        {"type": "script", "command": "make", "agent_query_rules": each, "timeout_in_minutes": "10"} for each in rules
    ]
    new = {"name": "Rules", "cluster_id": "", "repository": "git@git.example.com:a/b.git", "steps": steps}
    pipeline = http.post(f"{ACME}/pipelines", json=new).json()
    assert pipeline["cluster_id"] is None
    assert [step["agent_query_rules"] for step in pipeline["steps"]] == rules
    assert {step["timeout_in_minutes"] for step in pipeline["steps"]} == {10}
    again = new | {"name": "Again", "configuration": pipeline["configuration"]}
    del again["steps"]
    steps = http.post(f"{ACME}/pipelines", json=again).json()["steps"]
    assert [step["agent_query_rules"] for step in steps] == rules


def test_pipelines_are_filtered_by_name_and_repository(http: httpx.Client) -> None:
    pipelines = http.get(f"{ACME}/pipelines").json()
    web = next(pipeline for pipeline in pipelines if pipeline["slug"] == "web")
    for name in ("name", "repository"):
        found = http.get(f"{ACME}/pipelines", params={name: web[name]}).json()
        assert [pipeline["slug"] for pipeline in found] == ["web"]


def test_clusters_list_their_queues(http: httpx.Client) -> None:
    (cluster,) = http.get(f"{ACME}/clusters").json()
    queues = http.get(f"{cluster['url']}/queues").json()
    assert {"default", "macos"} <= {queue["key"] for queue in queues}
    assert [http.get(queue["url"]).json() for queue in queues] == queues
