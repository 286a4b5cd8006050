"""Requests and their responses: statuses, headers, pages, filters."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from buildframe import spec
from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.handlers.sql_filters import CONDITIONS

ACME = "/organizations/acme/builds"
Body = dict[str, Any]


def test_every_declared_operation_is_served(full_api):
    for endpoint in spec.ENDPOINTS:
        path = endpoint.path.replace("{org}", "nowhere" if endpoint.method != "GET" else "acme")
        path = re.sub("{[a-z_]*}", "x", path.replace("{pipeline}", "web").replace("{number}", "1"))
        response = full_api.http.request(endpoint.method, path)
        if endpoint.method != "GET":
            assert response.json() == {"message": "No organization found"}, endpoint.name
        elif "x" not in path.split("/"):
            assert response.status_code == endpoint.success, endpoint.name
        else:
            assert (response.status_code, response.json()["message"][-6:]) == (404, " found"), endpoint.name


def test_every_filter_of_builds_is_implemented():
    for endpoint in spec.ENDPOINTS:
        if endpoint.returns is spec.Build:
            shapes = {"include_retried_jobs", "exclude_jobs", "exclude_pipeline", "job_states", "include_test_engine"}
            shapes |= {"include_paused"}  # no queue of the sandbox is paused
            assert set(endpoint.filter_names) <= CONDITIONS.keys() | shapes


def test_without_a_known_token_the_response_is_401(small):
    for header in (None, "Bearer wrong", "Basic abc", "Bearer", "\u00e9"):
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        response = httpx.get(f"{small.url}/v2{ACME}", headers=headers)
        message = "Authentication required. Please supply a valid API Access Token"
        assert (response.status_code, response.json()) == (401, {"message": message}), header


def test_what_is_not_there_is_named(api):
    for path, message in {
        "/organizations/nowhere/builds": "No organization found",
        "/organizations/acme/pipelines/none": "No pipeline found",
        "/organizations/acme/pipelines/none/builds": "No pipeline found",
        "/organizations/globex/pipelines/web": "No pipeline found",
        "/organizations/acme/pipelines/web/builds/99999": "No build found",
        "/organizations/acme/pipelines/web/builds/" + "9" * 40: "No build found",
        "/organizations/acme/pipelines/web/builds/x": "No build found",
        "/nothing/here": "No route matches v2/nothing/here",
    }.items():
        response = api(path)
        assert (response.status_code, response.json()) == (404, {"message": message}), path


def test_an_organization_out_of_reach_looks_absent(small, api_client):
    only = api_client(small, small.token(organizations=["globex"]))
    assert only(ACME).json() == {"message": "No organization found"}
    assert {build["url"].split("/")[5] for build in only.all_pages("/builds")} == {"globex"}


def test_a_missing_scope_is_named(small, api_client):
    response = api_client(small, small.token(scopes=["read_pipelines"]))(ACME)
    assert (response.status_code, response.json()["message"]) == (
        403,
        "Your access token doesn't have the read_builds scope",
    )
    assert response.headers["X-OAuth-Scopes"] == "read_pipelines"
    assert response.headers["X-Accepted-OAuth-Scopes"] == "read_builds"


@pytest.mark.parametrize("module", ["app", "fault_injection"])
def test_a_failure_of_the_sandbox_shows_no_traceback(small, api_client, monkeypatch, module):
    def fail(*_):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(f"buildframe.sandbox_server.http.{module}.parse_page", fail)
    response = api_client(small)(ACME)  # the server closes its connection, which other tests would use again
    assert (response.status_code, response.json()) == (500, {"message": "Internal Server Error"})


def test_responses_carry_the_clock_and_an_id(small, api):
    first, second = api(ACME), api(ACME)
    assert parsedate_to_datetime(first.headers["Date"]) == small.clock.now()
    assert first.headers.get_list("Date", split_commas=False) == [first.headers["Date"]]
    assert "server" not in first.headers
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    assert first.headers["ETag"] == second.headers["ETag"]
    assert first.headers["ETag"].startswith('W/"')


def test_addresses_in_responses_lead_to_this_sandbox(api, builds):
    build = api(builds[0]["url"]).json()
    assert build["id"] == builds[0]["id"]
    assert api(build["pipeline"]["builds_url"]).status_code == 200


def test_a_trailing_slash_is_accepted(api):
    assert api(ACME + "/", per_page=1).json() == api(ACME, per_page=1).json()


# --- pages


def test_pages_default_to_30_and_hold_at_most_100(api):
    assert [len(api(ACME, **query).json()) for query in ({}, {"per_page": 7}, {"per_page": 500})] == [30, 7, 100]


def test_a_page_that_makes_no_sense_is_the_first(api):
    first = [build["id"] for build in api(ACME, per_page=2).json()]
    pages = {page: api(ACME, page=page, per_page=2).json() for page in ("0", "1", "-3", "x", "", "1.5", "\u0662")}
    assert {page: [build["id"] for build in builds] for page, builds in pages.items()} == dict.fromkeys(pages, first)


def test_a_page_past_the_end_is_empty_however_far(api):
    response = api("/organizations/acme/pipelines/docs/builds", page=90)
    assert (response.status_code, response.json()) == (200, [])
    assert set(response.links) <= {"first", "prev"}
    for page in ("999", "9" * 20, "9" * 30):
        response = api(ACME, page=page)
        assert (response.status_code, response.json()) == (200, [])


def test_pages_beyond_the_deepest_are_refused(api):
    with Sandbox(builds=90, days=2, deepest=60) as sandbox:
        deep = type(api)(sandbox)
        assert deep(ACME, page=2).status_code == 200
        response = deep(ACME, page=3)
        assert response.status_code == 400
        assert "Listing builds this deep is not supported" in response.json()["message"]
        assert deep(ACME, page=10**15).json() == []
        deep.http.close()


def test_links_keep_the_query(api):
    query = [
        ("branch[]", "a&b=c d"),
        ("branch[]", "ma*"),
        ("meta_data[channel]", "edge"),
        ("x", "é+%"),
        ("per_page", "2"),
    ]
    links = api.http.get(ACME, params=[*query, ("page", "2")]).links
    for name, page in (("first", "1"), ("prev", "1"), ("next", "3")):
        assert parse_qsl(urlsplit(links[name]["url"]).query) == [("page", page), *query]
    assert links["next"]["url"].startswith(api.sandbox.url)


def test_a_list_of_one_page_has_an_empty_link(api):
    assert api("/organizations/acme/pipelines").headers["Link"] == ""


def test_all_pages_list_each_build_once_newest_first(api, builds):
    listed = api.all_pages(ACME, exclude_jobs="true")
    assert len({build["id"] for build in listed}) == len(listed)
    assert {build["id"] for build in listed} == {build["id"] for build in builds if "/acme/" in build["url"]}
    modern = [build["created_at"] for build in listed if build["created_at"].endswith("Z")]
    assert modern == sorted(modern, reverse=True)


# --- filters: each against the same choice made from everything


def chosen(api, builds, keep, *params):
    found = {build["id"] for build in list_all(api, params)}
    assert found == {build["id"] for build in builds if keep(build)}
    return found


def list_all(api, params):
    response = api.http.get("/builds", params=[*params, ("per_page", "100"), ("exclude_jobs", "true")])
    items = response.json()
    while "next" in response.links:
        response = api.http.get(response.links["next"]["url"])
        items += response.json()
    return items


def test_state(api, builds):
    over = ("passed", "failed", "canceled")
    for name in ("state", "state[]"):
        assert chosen(api, builds, lambda build: build["state"] == "failed", (name, "failed"))
        assert chosen(api, builds, lambda build: build["state"] in over or build["blocked"], (name, "finished"))
        assert chosen(api, builds, lambda build: build["blocked"], (name, "blocked"))
        assert not chosen(api, builds, lambda _: False, (name, "no such state"))


def test_several_states_and_branches(api, builds):
    params = [("state[]", "failed"), ("state[]", "canceled"), ("branch[]", "main"), ("branch[]", "fix/*")]

    def keep(build):
        right_branch = build["branch"] == "main" or build["branch"].startswith("fix/")
        return build["state"] in ("failed", "canceled") and right_branch

    assert chosen(api, builds, keep, *params)


def test_in_branches_only_the_star_is_special(api, builds):
    for branch in ("*heck*", "main", "*"):
        wanted = branch.strip("*")
        assert chosen(api, builds, lambda build, wanted=wanted: wanted in build["branch"], ("branch", branch))
    for branch in ("m?in", "m?i*", "[m]ain", "[m]ai*", "nothing", "MAIN", "MAI*"):
        assert not chosen(api, builds, lambda _: False, ("branch", branch))


def test_commits_are_whole(api, builds):
    sha = builds[5]["commit"]
    assert chosen(api, builds, lambda build: build["commit"] == sha, ("commit", sha))
    assert not chosen(api, builds, lambda _: False, ("commit", sha[:10]))


def test_creator_and_meta_data(api, builds):
    creator = next(build["creator"]["id"] for build in builds if build["creator"])
    assert chosen(api, builds, lambda build: (build["creator"] or {}).get("id") == creator, ("creator", creator))
    edge = [("meta_data[channel]", "edge")]
    assert chosen(api, builds, lambda build: build["meta_data"].get("channel") == "edge", *edge)
    release = next(build["meta_data"]["release"] for build in builds if build["meta_data"].get("channel") == "edge")

    def keep(build):
        return build["meta_data"].get("channel") == "edge" and build["meta_data"].get("release") == release

    assert chosen(api, builds, keep, *edge, ("meta_data[release]", release))


def test_created_from_is_inclusive_and_created_to_exclusive(api):
    middle = api("/organizations/acme/pipelines/web/builds").json()[10]
    stamp = middle["created_at"]
    later = {build["id"] for build in list_all(api, [("created_from", stamp)])}
    earlier = {build["id"] for build in list_all(api, [("created_to", stamp)])}
    assert middle["id"] in later - earlier
    assert not later & earlier
    assert len(later | earlier) == len(list_all(api, []))
    with_zone = stamp.replace("Z", "+00:00")
    assert {build["id"] for build in list_all(api, [("created_from", with_zone)])} == later


def test_finished_from(api, builds):
    modern = [build for build in builds if (build["finished_at"] or "").endswith("Z")]
    stamp = modern[len(modern) // 2]["finished_at"]
    found = {build["id"] for build in list_all(api, [("finished_from", stamp)])}
    ids = {build["id"] for build in modern if build["finished_at"] >= stamp}
    assert ids == found & {build["id"] for build in modern}


def test_a_time_that_cannot_be_read_is_refused(api):
    for text in ("yesterday", "2026-10-26T10:00:61", "2026-10-26 25:00", "", "0001-01-01T00:00:00+05:00"):
        response = api(ACME, created_from=text)
        assert response.status_code == 422, text
        assert response.json()["errors"] == [{"field": "created_from", "code": "invalid"}], text


def test_a_time_without_a_zone_is_in_utc(api, builds):
    bound = sorted(build["created_at"] for build in builds if build["created_at"].endswith("Z"))[len(builds) // 2]
    with_zone = [build["id"] for build in list_all(api, [("created_from", bound)])]
    assert 0 < len(with_zone) < len(builds)
    for separator in ("T", " "):
        naive = bound.removesuffix("Z").replace("T", separator)
        assert [build["id"] for build in list_all(api, [("created_from", naive)])] == with_zone


def test_a_bare_date_and_unknown_parameters_are_fine(api):
    assert api(ACME, created_from="2026-10-26", whatever="x").status_code == 200


def test_values_cannot_become_sql(api, builds):
    nasty = "'; DROP TABLE builds; --"
    assert api(ACME, branch=nasty, creator=nasty, **{f"meta_data[{nasty}]": nasty, "state[]": nasty}).json() == []
    assert len(list_all(api, [])) == len(builds)


def test_by_default_only_the_last_attempts_are_listed(api, builds):
    last = [job for build in api.all_pages("/builds") for job in build["jobs"] if job["type"] == "script"]
    every = [job for build in builds for job in build["jobs"] if job["type"] == "script"]
    assert any(job["retried"] for job in every)
    assert [job["id"] for job in last] == [job["id"] for job in every if not job["retried"]]


def test_jobs_and_pipeline_can_be_left_out(api):
    bare = api(ACME, exclude_jobs="true", exclude_pipeline="true", per_page=1).json()[0]
    whole = api(ACME, exclude_jobs="false", per_page=1).json()[0]
    assert whole.keys() - bare.keys() == {"jobs", "pipeline"}


# --- shapes


def test_agents_are_whole_in_single_builds_only(api, builds):
    url, listed = next((build["url"], job["agent"]) for build in builds for job in build["jobs"] if job.get("agent"))
    assert set(listed) == {"id", "url", "name"}
    whole = next(job["agent"] for job in api(url).json()["jobs"] if job.get("agent"))
    assert whole["connection_state"] in ("connected", "lost")
    assert {"hostname", "ip_address", "user_agent", "creator", "created_at", "web_url", "graphql_id"} <= whole.keys()


def test_the_webhook_address_needs_write_pipelines(small, api, api_client):
    editor = api_client(small, small.token(scopes=["read_pipelines", "write_pipelines"]))
    path = "/organizations/acme/pipelines/web"
    assert api(path).json()["provider"]["webhook_url"] == ""
    assert editor(path).json()["provider"]["webhook_url"].startswith("http")


def test_every_declared_field_is_sent_somewhere(api, builds):
    pipelines = api("/organizations/acme/pipelines").json()
    jobs = [job for build in builds for job in build["jobs"]]
    for resource, records in ((spec.Build, builds), (spec.Job, jobs), (spec.Pipeline, pipelines)):
        declared = {field.name for field in spec.fields_of(resource) if field.sent} - {"allow_rebuilds"}
        assert declared == {key for record in records for key in record}


def test_null_and_absent_and_both_forms_of_time_occur(builds, jobs):
    authors = [build["author"] for build in builds if "author" in build]
    assert {type(author) for author in authors} == {type(None), dict, str}
    assert {} in authors
    assert any("author" not in build for build in builds)
    assert any(build["creator"] is None for build in builds)
    requests = [build["pull_request"] for build in builds]
    assert None in requests
    assert {} in requests
    assert any(request for request in requests if request)
    assert any("priority" not in job for job in jobs)
    assert {build["created_at"].endswith(" UTC") for build in builds} == {True, False}
    assert any("\n" in build["message"] for build in builds)
    assert any("<" in build["message"] for build in builds)
