"""Builds created, canceled, rebuilt and unblocked by request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.serializers import format_time
from buildframe.sandbox_server.db.tokens import SCOPES

Body = dict[str, Any]

PIPELINES = "/organizations/acme/pipelines"
BUILD = {"commit": "HEAD", "branch": "main"}
STEPS = """
steps:
- {label: Test, command: make}
- {block: "Release?"}
- {command: make release, branches: main}
"""


@pytest.fixture
def line(http: httpx.Client, request: pytest.FixtureRequest) -> str:
    """Address of a new pipeline of a test's own."""
    return made(http, request.node.name)


def made(http: httpx.Client, name: str, **properties: Any) -> str:
    body = {"name": name, "cluster_id": None, "repository": "git@git.example.com:a/b.git", "configuration": STEPS}
    response = http.post(PIPELINES, json=body | properties)
    assert response.status_code == 201, response.text
    return f"{PIPELINES}/{response.json()['slug']}"


def build(http: httpx.Client, line: str, **properties: Any) -> Body:
    response = http.post(f"{line}/builds", json=BUILD | properties)
    assert response.status_code == 201, response.text
    body: Body = response.json()
    return body


def refused(response: httpx.Response) -> str:
    """The reason of a 422, which says nothing else."""
    body = response.json()
    assert (response.status_code, list(body)) == (422, ["message"])
    return str(body["message"])


# --- creating


def test_a_new_build_has_the_properties_and_the_defaults(sandbox: Sandbox, http: httpx.Client, line: str) -> None:
    new = build(http, line)
    assert (new["state"], new["number"], new["source"], new["blocked"]) == ("scheduled", 1, "api", False)
    assert (new["commit"], new["branch"], new["message"]) == ("HEAD", "main", "")
    assert (new["env"], new["meta_data"], new["rebuilt_from"]) == ({}, {}, None)
    assert new["creator"]["email"] == new["author"]["email"]
    assert new["creator"]["name"] == new["author"]["name"]
    assert new["creator"]["email"].endswith("@example.com")
    assert new["created_at"] == format_time(sandbox.clock.now().us)
    assert new["pipeline"]["slug"] in new["url"]
    assert http.get(new["url"]).json() == new


def test_every_property_of_a_new_build(http: httpx.Client, line: str) -> None:
    properties = {
        "commit": "v1.0",
        "branch": "feature/x",
        "message": "<b>Größe</b>\n🚀",
        "author": {"name": "Ada Quill", "email": "ada@example.com"},
        "clean_checkout": True,
        "env": {"A": "1", "EMPTY": ""},
        "meta_data": {"release": "1.0"},
        "pull_request_base_branch": "stable",
        "pull_request_id": 12,
        "pull_request_repository": "git@git.example.com:fork/b.git",
    }
    new = build(http, line, **properties)
    for name in ("commit", "branch", "message", "author", "env", "meta_data"):
        assert new[name] == properties[name]
    expected = {"id": "12", "base": "stable", "repository": properties["pull_request_repository"], "labels": []}
    assert new["pull_request"] == expected
    found = http.get(f"{line}/builds", params={"meta_data[release]": "1.0", "branch": "feature/x"}).json()
    assert [one["id"] for one in found] == [new["id"]]


def test_a_pull_request_is_by_default_for_the_default_branch(http: httpx.Client) -> None:
    line = made(http, "Default branch", default_branch="trunk")
    expected = build(http, line, pull_request_id=3)["pull_request"]
    assert expected == {"id": "3", "base": "trunk", "repository": "git@git.example.com:a/b.git", "labels": []}


WRONG_BUILDS: list[tuple[Body, dict[str, str]]] = [
    ({"commit": ""}, {"commit": "must not be empty"}),
    ({"branch": "  "}, {"branch": "must not be empty"}),
    ({"pull_request_id": 0}, {"pull_request_id": "must be from 1 to 2147483647"}),
    ({"pull_request_id": 10**40}, {"pull_request_id": "must be from 1 to 2147483647"}),
    ({"env": {"A": 1}}, {"env.A": "must be text"}),
    ({"author": "Ada"}, {"author": "must be an object"}),
    ({"meta_data": {"a": None}, "message": 1}, {"message": "must be text", "meta_data.a": "must be text"}),
]


def test_a_build_that_cannot_be(http: httpx.Client) -> None:
    for wrong, codes in WRONG_BUILDS:
        response = http.post(f"{PIPELINES}/web/builds", json=BUILD | wrong)
        errors = [{"field": field, "code": code} for field, code in codes.items()]
        assert (response.status_code, response.json()) == (422, {"message": "Validation Failed", "errors": errors})


def test_the_pipelines_branch_filter_counts_unless_ignored(http: httpx.Client) -> None:
    line = made(http, "Only main", branch_configuration="main !main-old")
    assert "Branch dev" in refused(http.post(f"{line}/builds", json=BUILD | {"branch": "dev"}))
    ignored = build(http, line, branch="dev", ignore_pipeline_branch_filters=True)
    assert [job["state"] for job in ignored["jobs"] if job.get("command") == "make release"] == ["broken"]


def test_an_archived_pipeline_is_not_built(http: httpx.Client) -> None:
    line = made(http, "Archive me")
    old = build(http, line)
    http.post(f"{line}/archive")
    assert "archived" in refused(http.post(f"{line}/builds", json=BUILD))
    assert "archived" in refused(http.put(f"{old['url']}/rebuild"))
    assert len(http.get(f"{line}/builds").json()) == 1


def test_the_creator_can_be_filtered_by(sandbox: Sandbox, http: httpx.Client, line: str) -> None:
    other = {"Authorization": f"Bearer {sandbox.token(SCOPES)}"}
    theirs = http.post(f"{line}/builds", json=BUILD, headers=other).json()
    mine = build(http, line)
    assert mine["creator"]["id"] != theirs["creator"]["id"]
    found = http.get(f"{line}/builds", params={"creator": theirs["creator"]["id"]}).json()
    assert [one["number"] for one in found] == [theirs["number"]]


def test_a_new_pipeline_runs_its_builds() -> None:
    with Sandbox(builds=5, days=1) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token(SCOPES)}"}
        with httpx.Client(base_url=f"{sandbox.url}/v2", headers=headers) as http:
            new = build(http, made(http, "Runs", configuration="- {command: make}"))
            sandbox.clock.advance(dt.timedelta(hours=2))
            done = http.get(new["url"]).json()
            assert done["state"] in ("passed", "failed")
            assert done["jobs"][0]["agent"]["hostname"].endswith("example.com")


def test_jobs_are_in_the_cluster_of_their_pipeline_if_it_is_in_one(http: httpx.Client) -> None:
    steps = "- {command: 'make {{matrix}}', matrix: [a, b]}"
    cluster = http.get(f"{PIPELINES}/web").json()["cluster_id"]
    for id in (cluster, None):
        new = build(http, made(http, f"In {id}", cluster_id=id, configuration=steps))
        assert new["cluster_id"] == id
        assert [job["cluster_id"] for job in new["jobs"]] == [id, id]
        assert [bool(job["cluster_queue_url"]) for job in new["jobs"]] == [bool(id)] * 2
        assert [job["command"] for job in new["jobs"]] == ["make a", "make b"]


# --- canceling and rebuilding


def test_a_build_is_canceled_once(http: httpx.Client, line: str) -> None:
    new = build(http, line)
    response = http.put(f"{new['url']}/cancel")
    assert (response.status_code, response.json()["state"]) == (200, "canceled")
    assert response.json()["finished_at"]
    assert http.get(new["url"]).json() == response.json()
    again = refused(http.put(f"{new['url']}/cancel"))
    assert again == "Build can't be canceled because it's already canceled."


def test_a_rebuild_is_a_new_build_of_the_same(http: httpx.Client, line: str) -> None:
    old = build(http, line, env={"A": "1"}, meta_data={"b": "2"}, message="Once more")
    again = http.put(f"{old['url']}/rebuild")
    assert again.status_code == 200
    new = again.json()
    assert (new["number"], new["state"]) == (old["number"] + 1, "scheduled")
    assert new["rebuilt_from"] == {name: old[name] for name in ("id", "number", "url")}
    same = ("commit", "branch", "message", "env", "meta_data")
    assert [new[name] for name in same] == ["HEAD", "main", "Once more", {"A": "1"}, {"b": "2"}]
    assert http.get(new["url"]).json() == new


def test_a_build_that_is_not_there(http: httpx.Client) -> None:
    for path in (*(f"{number}/cancel" for number in ("999999", "0", "-1", "x", "9" * 50, "1.0")), "999999/rebuild"):
        response = http.put(f"{PIPELINES}/web/builds/{path}")
        assert (response.status_code, response.json()) == (404, {"message": "No build found"}), path


def test_reading_does_not_allow_writing(sandbox: Sandbox, http: httpx.Client, line: str) -> None:
    url = build(http, line)["url"]
    reader = {"Authorization": f"Bearer {sandbox.token()}"}
    for method, path in (("POST", f"{line}/builds"), ("PUT", f"{url}/cancel"), ("PUT", f"{url}/rebuild")):
        response = http.request(method, path, headers=reader)
        assert response.status_code == 403
        assert response.headers["X-Accepted-OAuth-Scopes"] == "write_builds"
    assert http.get(url).json()["state"] == "scheduled"


# --- blocked builds


@pytest.fixture(scope="module")
def blocked() -> Iterator[tuple[Sandbox, httpx.Client, str]]:
    with Sandbox(builds=5, days=1) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.token(SCOPES)}"}
        with httpx.Client(base_url=f"{sandbox.url}/v2", headers=headers) as http:
            url = build(http, made(http, "Blocks", configuration=STEPS))["url"]
            sandbox.clock.advance(dt.timedelta(hours=2))
            yield sandbox, http, url


def test_a_block_step_is_unblocked_by_request(blocked: tuple[Sandbox, httpx.Client, str]) -> None:
    sandbox, http, url = blocked
    before = http.get(url).json()
    job = next(job for job in before["jobs"] if job["type"] == "manual")
    assert (before["blocked"], before["state"], job["state"]) == (True, "passed", "blocked")
    response = http.put(job["unblock_url"], json={"fields": {"a": "b"}})
    assert response.status_code == 200
    assert (response.json()["id"], response.json()["state"]) == (job["id"], "unblocked")
    assert response.json()["unblocked_by"]["email"].endswith("@example.com")
    assert response.json()["unblocked_at"] == format_time(sandbox.clock.now().us)
    assert http.get(url).json()["blocked"] is False
    assert "isn't blocked" in refused(http.put(job["unblock_url"]))
    sandbox.clock.advance(dt.timedelta(hours=2))
    after = http.get(url).json()
    assert [job["state"] for job in after["jobs"] if job.get("command") == "make release"] in (["passed"], ["failed"])


def test_only_jobs_of_the_build_can_be_unblocked(blocked: tuple[Sandbox, httpx.Client, str]) -> None:
    _, http, url = blocked
    response = http.put(f"{url}/jobs/none/unblock")
    assert (response.status_code, response.json()) == (404, {"message": "No job found"})
    script = next(job for job in http.get(url).json()["jobs"] if job["type"] == "script")
    assert "isn't blocked" in refused(http.put(f"{url}/jobs/{script['id']}/unblock"))


# --- filters


def many(name: str, value: str, count: int = 1200) -> list[tuple[str, str]]:
    return [(name.format(n), value.format(n)) for n in range(count)]


def test_a_state_may_be_repeated(http: httpx.Client) -> None:
    path = "/organizations/acme/builds"
    once = http.get(path, params={"state[]": ["passed", "blocked"]})
    often = http.get(path, params=many("state[]", "passed") + many("state[]", "blocked", 1) + many("state[]", "s{}"))
    assert (often.status_code, often.json()) == (200, once.json())
    assert once.json()
    assert http.get(path, params=many("state[]", "s{}")).json() == []


def test_very_many_values_are_refused(http: httpx.Client) -> None:
    path = f"{PIPELINES}/web/builds"
    for name, value in (("branch[]", "*x{}"), ("branch[]", "x{}"), ("commit[]", "{:040x}"), ("meta_data[{}]", "v")):
        response = http.get(path, params=many(name, value))
        expected = {"message": f"At most 200 values of {name.split('[')[0]} are allowed"}
        assert (response.status_code, response.json()) == (400, expected)
        assert http.get(path, params=many(name, value, 200)).status_code == 200
    for path in ("/builds", "/organizations/acme/builds"):
        assert http.get(path, params=many("branch[]", "x{}")).status_code == 400


def test_the_same_value_again_is_one(http: httpx.Client) -> None:
    for name, value in (("branch[]", "ma*"), ("branch[]", "main"), ("meta_data[channel]", "stable")):
        path = f"{PIPELINES}/web/builds"
        response = http.get(path, params=many(name, value))
        assert response.json() == http.get(path, params={name: value}).json() != []


def test_only_a_full_sha_finds_builds(http: httpx.Client, line: str) -> None:
    for commit in ("HEAD", "c" * 7, "c" * 39, "c" * 41, "g" * 40, "v1.0", "c" * 63, " " + "c" * 40):
        build(http, line, commit=commit)
        assert http.get(f"{line}/builds", params={"commit": commit}).json() == [], commit
    for commit in ("c" * 40, "0123456789abcdef" * 4, "ABCDEF0123" * 4):
        new = build(http, line, commit=commit)
        found = http.get(f"{line}/builds", params={"commit[]": [commit, "HEAD"]}).json()
        assert [each["id"] for each in found] == [new["id"]], commit
