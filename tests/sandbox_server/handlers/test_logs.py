"""Logs of jobs as JSON and as text, while the jobs run and afterwards."""

from __future__ import annotations

import datetime as dt
import html
import itertools
import re

import httpx
import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES

ACME = "/organizations/acme"


@pytest.fixture(scope="module")
def builds(sandbox_api):
    return sandbox_api.all_pages("/builds", include_retried_jobs="true")


@pytest.fixture(scope="module")
def jobs(builds):
    return [job for build in builds for job in build["jobs"] if job["type"] == "script"]


def text_of(log: str) -> list[str]:
    return [re.sub(r"^\x1b_bk;t=\d+\x07", "", line) for line in log.splitlines()]


def times_of(log: str) -> list[int]:
    return [int(time) for time in re.findall(r"^\x1b_bk;t=(\d+)\x07", log, re.MULTILINE)]


def test_a_log_is_the_same_in_every_form(sandbox_api, jobs):
    job = next(job for job in jobs if job["state"] == "passed" and "raw_log_url" in job)
    log, raw = sandbox_api.http.get(job["log_url"]).json(), sandbox_api.http.get(job["raw_log_url"])
    assert log.keys() == {"url", "content", "size", "header_times"}
    assert log["url"] == job["log_url"]
    assert log["content"] == raw.text == sandbox_api.http.get(job["log_url"], headers={"Accept": "text/plain"}).text
    assert log["size"] == len(raw.content)
    page = sandbox_api.http.get(job["log_url"], headers={"Accept": "text/html"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert html.unescape(page.text) == re.sub(r"\x1b\[[\d;]*m", "", "\n".join([*text_of(raw.text), ""]))
    headers = [
        time for time, line in zip(times_of(raw.text), text_of(raw.text), strict=True) if line[:4] in ("--- ", "~~~ ")
    ]
    assert [time // 1_000_000 for time in log["header_times"]] == headers
    assert len(headers) == 2


def test_a_log_as_html_is_escaped(sandbox_api, jobs):
    urls = (job["log_url"] for job in jobs if job["state"] == "passed" and "raw_log_url" in job)
    url = next(url for url in urls if "read <config> & went on" in sandbox_api.http.get(url).json()["content"])
    page = sandbox_api.http.get(url, headers={"Accept": "text/html"}).text
    assert "read &lt;config&gt; &amp; went on" in page
    assert "<config>" not in page


def test_a_log_lies_within_its_jobs_time_and_shows_its_end(sandbox_api, jobs):
    over = [job for job in jobs if job["started_at"] and job["finished_at"] and "raw_log_url" in job]
    failed = [job for job in over if job["state"] == "failed" and job["exit_status"] > 0]
    for job in (*over[:20], *failed[:5]):
        log = sandbox_api.http.get(job["raw_log_url"]).text
        times = times_of(log)
        first, last = (dt.datetime.fromisoformat(job[key]).timestamp() * 1000 for key in ("started_at", "finished_at"))
        assert first - 1 <= times[0] <= times[-1] <= last + 1
        assert times == sorted(times)
    assert f"exited with status {failed[0]['exit_status']}" in sandbox_api.http.get(failed[0]["raw_log_url"]).text


def test_text_in_logs_is_as_it_was_written(sandbox_api, builds):
    build = next(b for b in builds if "<script>" in b["message"] and b["state"] == "passed")
    job = next(job for job in build["jobs"] if job["type"] == "script" and job["started_at"])
    assert build["message"] in sandbox_api.http.get(job["raw_log_url"]).text


def test_a_job_that_did_not_start_has_an_empty_log(sandbox_api, jobs):
    job = next(job for job in jobs if job["started_at"] is None and "raw_log_url" in job)
    assert sandbox_api.http.get(job["raw_log_url"]).content == b""
    assert sandbox_api.http.get(job["log_url"]).json()["size"] == 0


@pytest.mark.long
def test_a_log_grows_while_its_job_runs_and_then_stays(api_client):
    with Sandbox(builds=20, days=2) as sandbox:
        sandbox_api = api_client(sandbox, sandbox.token(SCOPES))
        number = sandbox.push("web")[0]
        path = f"{ACME}/pipelines/web/builds/{number}"
        logs: list[str] = []
        while not sandbox_api(path).json()["finished_at"]:
            sandbox.clock.advance(dt.timedelta(seconds=20))
            job = next((job for job in sandbox_api(path).json()["jobs"] if job.get("step_key") == "install"), None)
            logs += [sandbox_api.http.get(job["raw_log_url"]).text] if job else []
        assert len({len(log) for log in logs}) > 2
        assert all(after.startswith(before) for before, after in itertools.pairwise(logs))


def test_logs_need_a_token_a_scope_and_a_script(sandbox, sandbox_api, api_client, builds, jobs):
    address = next(job["log_url"] for job in jobs if "log_url" in job and "/acme/" in job["log_url"])
    assert httpx.get(address).status_code == 401
    assert api_client(sandbox, sandbox.token(["read_pipelines"])).http.get(address).status_code == 403
    assert api_client(sandbox, sandbox.token(organizations=["globex"])).http.get(address).status_code == 404
    wait_step = next((b, job) for b in builds for job in b["jobs"] if job["type"] == "waiter")
    response = sandbox_api.http.get(f"{wait_step[0]['url']}/jobs/{wait_step[1]['id']}/log")
    assert (response.status_code, response.json()) == (404, {"message": "No log found"})
    assert sandbox_api.http.get(f"{wait_step[0]['url']}/jobs/x/log").json() == {"message": "No job found"}
