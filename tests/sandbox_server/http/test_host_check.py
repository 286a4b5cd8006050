"""Only requests that name the sandbox are served, and no web page of another origin changes it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

import buildframe as bf
from buildframe.sandbox_server import SCOPES, Sandbox

PATHS = ["/v2/organizations/acme/pipelines", "/acme/web", "/openapi.json", "/sandbox/clock", "/sandbox/deliveries"]


def port_of(sandbox: Sandbox) -> str:
    return sandbox.url.rpartition(":")[2]


@pytest.fixture(scope="module")
def token(sandbox: Sandbox) -> str:
    return sandbox.token(["read_pipelines", "sandbox"])


def got(sandbox: Sandbox, path: str, token: str, host: str) -> httpx.Response:
    return httpx.get(f"{sandbox.url}{path}", headers={"Authorization": f"Bearer {token}", "Host": host})


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    [
        "rebound.example.com:{}",
        "localhost.example.com:{}",
        "192.0.2.1:{}",
        "[2001:db8::1]:{}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:{}0",
        "",
    ],
)
def test_another_host_is_refused(sandbox: Sandbox, token: str, path: str, host: str) -> None:
    named = host.format(port_of(sandbox))
    response = got(sandbox, path, token, named)
    assert response.status_code == 421
    assert response.json() == {"message": f"Host {named!r} does not name this sandbox. Use its printed address."}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LOCALHOST:{}", "localhost.:{}", "[::1]:{}"])
def test_its_own_host_is_served(sandbox: Sandbox, token: str, path: str, host: str) -> None:
    assert got(sandbox, path, token, host.format(port_of(sandbox))).status_code == 200


def test_one_that_listens_everywhere_is_reached_by_addresses_and_no_foreign_name() -> None:
    with bf.sandbox(builds=20, days=2, host="0.0.0.0") as ci:
        port, token = port_of(ci.sandbox), ci.sandbox.token()
        statuses = [
            got(ci.sandbox, PATHS[0], token, f"{name}:{port}").status_code
            for name in ("192.0.2.1", "[2001:db8::1]", "localhost", "rebound.example.com")
        ]
    assert statuses == [200, 200, 200, 421]


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example.com"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_origin_changes_nothing(sandbox: Sandbox, headers: dict[str, str]) -> None:
    writer = {"Authorization": f"Bearer {sandbox.token([*SCOPES, 'sandbox'])}"}
    pipeline: dict[str, Any] = httpx.get(f"{sandbox.url}{PATHS[0]}/web", headers=writer).json()
    push = {"ref": "refs/heads/main", "after": "0" * 39 + "1", "head_commit": {"message": "m"}}
    before = sandbox.clock.now()
    for url, body in (
        (pipeline["provider"]["webhook_url"], push),
        (f"{sandbox.url}/sandbox/clock", {"advance_s": 60}),
        (f"{sandbox.url}{PATHS[0]}/web/builds", {"commit": "HEAD", "branch": "main"}),
    ):
        response = httpx.post(url, content=json.dumps(body), headers=writer | headers)
        assert (response.status_code, response.json()["message"]) == (
            403,
            "Web pages of other origins cannot change this sandbox.",
        )
    assert sandbox.clock.now() == before


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_images_stand_in_pages_of_other_origins(sandbox: Sandbox, headers: dict[str, str]) -> None:
    image = httpx.get(f"{sandbox.url}/emojis/rocket.svg", headers=headers)
    assert image.status_code == 200
    assert not [name for name in image.headers if name.startswith("access-control-")], "no page may read it"


def test_its_own_pages_and_programs_may_change_it(sandbox: Sandbox, token: str) -> None:
    for headers in ({}, {"Origin": sandbox.url}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        sent = {"Authorization": f"Bearer {token}"} | headers
        assert httpx.post(f"{sandbox.url}/sandbox/clock", json={"advance_s": 1}, headers=sent).status_code == 200
