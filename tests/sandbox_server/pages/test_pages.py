"""Every URL in a response of the sandbox works; the contents of pages and images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from buildframe import spec

ACME = "/organizations/acme"
_MOST_OF_ONE_PATTERN = 12


@pytest.fixture(scope="module")
def builds(sandbox_api):
    return sandbox_api.all_pages("/builds", include_retried_jobs="true")


# --- every URL


def responses_of_reads(sandbox, sandbox_api) -> dict[str, Any]:
    """Return the response of each operation that reads."""
    (flaky, *_), team = sandbox.suites(), sandbox.teams()["Everyone"]
    pipeline = sandbox_api(f"{ACME}/pipelines/web").json()["id"]
    build = sandbox_api(f"{ACME}/pipelines/web/builds").json()[-1]
    number, job = build["number"], build["jobs"][0]["id"]
    runs = sandbox_api.all_pages(f"/analytics{ACME}/suites/{flaky}/runs")
    run = next(run["id"] for run in runs if run["result"] == "failed")
    user = sandbox_api(f"{ACME}/members").json()[0]["id"]
    responses = {}
    for endpoint in spec.ENDPOINTS:
        if endpoint.method == "GET":
            names = {"org": "acme", "pipeline": "web", "team": team, "user": user, "suite": flaky, "run": run}
            path = endpoint.path.format(**names, number=number, job=job, pipeline_id=pipeline)
            is_list = endpoint.paginated and not endpoint.enveloped
            responses[endpoint.name] = sandbox_api.all_pages(path) if is_list else sandbox_api(path).json()
    responses["list_suites"] = sandbox_api(f"/analytics{ACME}/suites").json()
    return responses


def responses_of_writes(sandbox, sandbox_api) -> dict[str, Any]:
    """Return the response of each operation that writes, on its own pipeline."""
    team, here = sandbox.teams()["Visitors"], f"{ACME}/pipelines/pages-test"
    new = {"name": "Pages test", "repository": "git@github.com:acme/pages.git", "cluster_id": None}
    made = {
        "create_pipeline": sandbox_api.http.post(
            f"{ACME}/pipelines", json=new | {"configuration": "steps:\n- command: a"}
        )
    }
    id = made["create_pipeline"].json()["id"]
    has = {"pipeline_id": id, "access_level": "read_only"}
    made["create_build"] = sandbox_api.http.post(f"{here}/builds", json={"commit": "a" * 40, "branch": "main"})
    build = f"{here}/builds/{made['create_build'].json()['number']}"
    for name, method, path, body in (
        ("cancel_build", "PUT", f"{build}/cancel", None),
        ("rebuild_build", "PUT", f"{build}/rebuild", None),
        ("update_pipeline", "PATCH", here, {"description": "d"}),
        ("add_webhook", "POST", f"{here}/webhook", None),
        ("create_team_pipeline", "POST", f"{ACME}/teams/{team}/pipelines", has),
        ("update_team_pipeline", "PATCH", f"{ACME}/teams/{team}/pipelines/{id}", {"access_level": "build_and_read"}),
        ("archive_pipeline", "POST", f"{here}/archive", None),
        ("unarchive_pipeline", "POST", f"{here}/unarchive", None),
    ):
        made[name] = sandbox_api.http.request(method, path, json=body)
    blocked = sandbox_api.http.get(f"{ACME}/builds", params={"state": "blocked"}).json()
    waiting = next(job for build in blocked for job in build["jobs"] if job.get("state") == "blocked")
    made["unblock_job"] = sandbox_api.http.put(waiting["unblock_url"])
    # Without a suite, because the run of a build that is running again is not listed.
    failed = sandbox_api.http.get(f"{ACME}/pipelines/mobile/builds", params={"state": "failed"}).json()
    over = next(job for build in failed for job in build["jobs"] if job.get("state") == "failed")
    made["retry_job"] = sandbox_api.http.put(over["log_url"].removesuffix("/log") + "/retry")
    assert {name: response.status_code for name, response in made.items() if response.is_error} == {}
    return {name: response.json() for name, response in made.items()}


def urls_in(value: Any, own: str) -> Iterator[str]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from urls_in(part, own)
    elif isinstance(value, str) and value.startswith(own):
        yield value


def url_pattern(url: str) -> str:
    """Replace the parts of a URL that differ between resources of one kind."""
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{40}|\d+|(?<=/pipelines/)[^/]+|(?<=emojis/)[^/]+", "*", url)


def content_type_of(url: str) -> str:
    """Return the content type that a URL must have."""
    if url.endswith(".svg"):
        return "image/svg+xml"
    if "/v2/" in url:
        return "text/plain; charset=utf-8" if url.endswith("/log.txt") else "application/json; charset=utf-8"
    return "text/plain; charset=utf-8" if "/deliver/" in url else "text/html; charset=utf-8"


@pytest.mark.long
def test_every_url_in_every_response_works(sandbox, sandbox_api):
    responses = responses_of_reads(sandbox, sandbox_api) | responses_of_writes(sandbox, sandbox_api)
    no_body = {endpoint.name for endpoint in spec.ENDPOINTS if endpoint.success == 204}
    assert responses.keys() == {endpoint.name for endpoint in spec.ENDPOINTS} - no_body | {"list_suites"}
    seen_by_pattern: dict[str, set[str]] = {}
    waiting = set(urls_in(responses, sandbox.url))
    while waiting:
        url = waiting.pop()
        seen = seen_by_pattern.setdefault(url_pattern(url), set())
        if url in seen or len(seen) == _MOST_OF_ONE_PATTERN:
            continue
        seen.add(url)
        response = sandbox_api.http.get(url)
        if url.endswith("/unblock"):  # is PUT
            assert response.status_code == 405
            continue
        assert (response.status_code, response.headers["content-type"]) == (200, content_type_of(url)), url
        if "json" in content_type_of(url):
            waiting |= set(urls_in(response.json(), sandbox.url))
    assert len(seen_by_pattern) > 20


@pytest.mark.long
def test_responses_contain_no_foreign_urls(sandbox, sandbox_api):
    responses = responses_of_reads(sandbox, sandbox_api)
    assert list(urls_in(responses, "http://buildframe.invalid")) == []
    assert list(urls_in(responses, "https://")) == []


# --- pages


class Page(HTMLParser):
    """The parts of a page; `convert_charrefs` returns texts as they are shown."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.ids |= {value for name, value in attrs if name == "id"}

    def handle_data(self, data):
        self.text += data


ALLOWED = {"html", "head", "meta", "title", "body", "h1", "dl", "dt", "dd", "article"}


def test_texts_are_shown_and_do_nothing(builds):
    for part in ("<script>", "<b>", "=SUM", "DROP TABLE", "日本語"):
        build = next(build for build in builds if part in build["message"])
        response = httpx.get(build["web_url"])
        page = Page(response.text)
        assert build["message"] in page.text
        assert page.tags <= ALLOWED
        assert response.headers["content-security-policy"] == "default-src 'none'"
        assert "<script" not in response.text


def test_a_build_page_has_every_job_where_its_address_points(builds):
    build = max(builds, key=lambda build: len(build["jobs"]))
    page = Page(httpx.get(build["web_url"]).text)
    assert page.ids == {job["id"] for job in build["jobs"]}
    anchors = {job["web_url"].split("#")[1] for job in build["jobs"] if "web_url" in job}
    assert len(anchors) > 5
    assert anchors <= page.ids


def test_a_pipeline_page_names_its_newest_builds(sandbox_api):
    pipeline = sandbox_api(f"{ACME}/pipelines/web").json()
    newest = sandbox_api(f"{ACME}/pipelines/web/builds", per_page=5).json()
    page = Page(httpx.get(pipeline["web_url"]).text)
    assert {build["id"] for build in newest} <= page.ids
    assert pipeline["description"] in page.text


def test_a_flaky_tests_page_shows_its_name(sandbox_api):
    for test in sandbox_api.all_pages("/analytics/organizations/acme/suites/rspec/flaky-tests")[:30]:
        page = Page(sandbox_api.http.get(test["web_url"]).text)
        assert test["name"] in page.text
        assert page.tags <= ALLOWED


def test_what_is_not_there_is_404(sandbox):
    for path in (
        "/acme/none", "/acme/web/builds/999999", "/acme/web/builds/x", "/nowhere/web", "/acme",
        "/organizations/acme/agents/x", "/organizations/acme/analytics/suites/rspec/tests/x",
        "/organizations/acme/analytics/suites/none/tests/x", "/avatars/x.svg", "/badges/x.svg", "/deliver/x",
        "/v2/nothing", "/v2/acme/web",
    ):  # fmt: skip
        response = httpx.get(sandbox.url + path)
        assert (response.status_code, response.json()) == (404, {"message": f"No route matches {path[1:]}"})


def test_a_badge_shows_the_state_of_the_default_branch(sandbox_api):
    states = set()
    for pipeline in sandbox_api(f"{ACME}/pipelines").json():
        newest = sandbox_api(
            f"{ACME}/pipelines/{pipeline['slug']}/builds", branch=pipeline["default_branch"], per_page=1
        ).json()
        badge = ElementTree.fromstring(httpx.get(pipeline["badge_url"]).content)
        state = newest[0]["state"] if newest else "unknown"
        assert badge.get("aria-label") == f"build: {state}"
        states.add(state)
    assert "passed" in states
