"""Bodies of requests, methods, and responses without a body."""

from __future__ import annotations

import threading

import httpx
import pytest

from buildframe import spec
from buildframe.sandbox_server import Sandbox

WEB = "/organizations/acme/pipelines/web"
BUILD = {"commit": "HEAD", "branch": "main"}


def message(response: httpx.Response) -> str:
    text: str = response.json()["message"]
    return text


def test_what_is_no_json_object_is_refused(http: httpx.Client) -> None:
    for sent in (b"{", b"nonsense", b'{"a": "\xff"}', b'"\\ud800"', b"[" * 5000, b"\x00", b'{"a": 1e999}'):
        response = http.post(f"{WEB}/builds", content=sent)
        assert (response.status_code, "cannot be read as JSON" in message(response)) == (400, True), sent[:20]
    for sent in (b"[]", b"null", b"5", b'"text"'):
        response = http.post(f"{WEB}/builds", content=sent)
        assert (response.status_code, message(response)) == (400, "The body must be a JSON object"), sent


def test_what_is_too_large_is_refused(http: httpx.Client) -> None:
    for size in (2**20 + 1, 5 * 2**20):
        response = http.post(f"{WEB}/builds", content=b" " * size)
        assert (response.status_code, message(response)) == (413, "The body is longer than 1048576 bytes")
    sent = b'{"commit": "HEAD", "branch": "main"}'
    assert http.post(f"{WEB}/builds", content=sent.ljust(2**20)).status_code == 201


def test_no_body_is_an_empty_one(http: httpx.Client) -> None:
    for sent in (b"", b"  \n", b"{}"):
        response = http.post(f"{WEB}/builds", content=sent)
        assert response.json() == {
            "message": "Validation Failed",
            "errors": [{"field": "commit", "code": "is missing"}, {"field": "branch", "code": "is missing"}],
        }


def test_token_and_scope_come_before_the_body(sandbox: Sandbox, http: httpx.Client) -> None:
    reader = {"Authorization": f"Bearer {sandbox.token()}"}
    assert http.post(f"{WEB}/builds", content=b"{", headers={"Authorization": "Bearer x"}).status_code == 401
    response = http.post(f"{WEB}/builds", content=b"{", headers=reader)
    assert (response.status_code, message(response)) == (403, "Your access token doesn't have the write_builds scope")


def test_what_the_path_names_comes_before_the_properties(http: httpx.Client) -> None:
    response = http.post("/organizations/acme/pipelines/none/builds", json={"commit": 5})
    assert (response.status_code, message(response)) == (404, "No pipeline found")


def test_every_property_is_checked(sandbox: Sandbox, http: httpx.Client) -> None:
    team = next(iter(sandbox.teams().values()))
    pipeline = http.get(f"/organizations/acme/teams/{team}/pipelines").json()[0]["pipeline_id"]
    blocked = next(each for each in http.get("/organizations/acme/pipelines/release/builds").json() if each["blocked"])
    job = next(each["id"] for each in blocked["jobs"] if each["type"] == "manual")
    names = {"org": "acme", "team": team, "pipeline_id": pipeline, "number": blocked["number"], "job": job}
    for endpoint in spec.ENDPOINTS:
        if not endpoint.properties:
            continue
        slug = "release" if endpoint is spec.unblock_job else "web"
        body = dict.fromkeys(endpoint.property_names, 1.5)
        response = http.request(endpoint.method, endpoint.path.format(**names, pipeline=slug), json=body)
        assert response.status_code == 422, endpoint.name
        errors = response.json().get("errors") or [
            {"field": name} for name in body if f"{name} must be" in message(response)
        ]
        assert [error["field"] for error in errors] == list(body), endpoint.name


def test_what_is_not_known_is_ignored(http: httpx.Client) -> None:
    assert http.post(f"{WEB}/builds", json=BUILD | {"whatever": [1]}).status_code == 201


def test_pages_of_a_write_are_ignored(http: httpx.Client) -> None:
    response = http.post(f"{WEB}/builds/?page=7&per_page=x", json=BUILD)
    assert response.status_code == 201
    assert "Link" not in response.headers


def test_another_method_gets_the_list_of_allowed_ones(http: httpx.Client) -> None:
    for method, path, allowed in (
        ("DELETE", "/organizations/acme/builds", {"GET", "HEAD"}),
        ("PUT", "/organizations/acme/pipelines", {"GET", "HEAD", "POST"}),
        ("OPTIONS", WEB, {"GET", "HEAD", "PATCH", "DELETE"}),
        ("GET", f"{WEB}/archive/", {"POST"}),
    ):
        response = http.request(method, path)
        assert (response.status_code, message(response)) == (405, "Method Not Allowed"), path
        assert set(response.headers["Allow"].split(", ")) == allowed, path


def test_head_is_get_without_its_body(http: httpx.Client) -> None:
    head, get = http.head(WEB), http.get(WEB)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["ETag"] == get.headers["ETag"]


def test_a_response_without_a_body_has_no_type(http: httpx.Client) -> None:
    made = {"name": "Short", "cluster_id": None, "repository": "r", "configuration": "- wait"}
    assert http.post("/organizations/acme/pipelines", json=made).status_code == 201
    response = http.delete("/organizations/acme/pipelines/short/")
    assert (response.status_code, response.content) == (204, b"")
    assert "Content-Type" not in response.headers
    assert response.headers["X-Accepted-OAuth-Scopes"] == "write_pipelines"
    assert response.headers["RateLimit-Remaining"]


@pytest.mark.long
def test_many_clients_at_once_are_served_one_after_the_other(sandbox: Sandbox, http: httpx.Client) -> None:
    """Writes, reads and the clock together neither stop each other nor give a number twice."""
    numbers: list[int] = []

    def build() -> None:
        for _ in range(8):
            numbers.append(http.post(f"{WEB}/builds", json=BUILD).json()["number"])
            http.get("/builds")

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        sandbox.push("web")
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == 32
