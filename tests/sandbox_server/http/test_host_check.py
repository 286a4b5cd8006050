"""Only requests that name the sandbox are served, and no web page of another origin changes it."""

from __future__ import annotations

import itertools
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


FOREIGN_HOSTS = [
    "rebound.example.com:{}",
    "localhost.example.com:{}",
    "192.0.2.1:{}",
    "[2001:db8::1]:{}",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.1:{}0",
    "",
]
OWN_HOSTS = ["127.0.0.1:{}", "localhost:{}", "LOCALHOST:{}", "localhost.:{}", "[::1]:{}"]


def test_another_host_is_refused(sandbox: Sandbox, token: str) -> None:
    for place, host in enumerate(FOREIGN_HOSTS):
        named = host.format(port_of(sandbox))
        for path in PATHS if place == 0 else PATHS[:1]:
            response = got(sandbox, path, token, named)
            message = f"Host {named!r} does not name this sandbox. Use its printed address."
            assert (response.status_code, response.json()) == (421, {"message": message}), path


def test_its_own_host_is_served(sandbox: Sandbox, token: str) -> None:
    served = [(host, PATHS[0]) for host in OWN_HOSTS] + [(OWN_HOSTS[0], path) for path in PATHS]
    statuses = {
        (host, path): got(sandbox, path, token, host.format(port_of(sandbox))).status_code for host, path in served
    }
    assert statuses == dict.fromkeys(served, 200)


def test_one_that_listens_everywhere_is_reached_by_addresses_and_no_foreign_name() -> None:
    with bf.sandbox(builds=20, days=2, host="0.0.0.0") as ci:
        assert ci.sandbox.url.startswith("http://127.0.0.1:")
        assert len(ci.pipelines()) >= 6
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


def test_a_page_of_another_origin_changes_nothing(sandbox: Sandbox) -> None:
    writer = {"Authorization": f"Bearer {sandbox.token([*SCOPES, 'sandbox'])}"}
    pipeline: dict[str, Any] = httpx.get(f"{sandbox.url}{PATHS[0]}/web", headers=writer).json()
    push = {"ref": "refs/heads/main", "after": "0" * 39 + "1", "head_commit": {"message": "m"}}
    before = sandbox.clock.now()
    for headers, (url, body) in itertools.product(
        FOREIGN,
        (
            (pipeline["provider"]["webhook_url"], push),
            (f"{sandbox.url}/sandbox/clock", {"advance_s": 60}),
            (f"{sandbox.url}{PATHS[0]}/web/builds", {"commit": "HEAD", "branch": "main"}),
        ),
    ):
        response = httpx.post(url, content=json.dumps(body), headers=writer | headers)
        message = "Web pages of other origins cannot change this sandbox."
        assert (response.status_code, response.json()["message"]) == (403, message), (url, headers)
    assert sandbox.clock.now() == before


def test_images_stand_in_pages_of_other_origins(sandbox: Sandbox) -> None:
    for headers in FOREIGN:
        image = httpx.get(f"{sandbox.url}/emojis/rocket.svg", headers=headers)
        assert image.status_code == 200, headers
        assert not [name for name in image.headers if name.startswith("access-control-")], "no page may read it"


def test_its_own_pages_and_programs_may_change_it(sandbox: Sandbox, token: str) -> None:
    for headers in ({}, {"Origin": sandbox.url}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        sent = {"Authorization": f"Bearer {token}"} | headers
        assert httpx.post(f"{sandbox.url}/sandbox/clock", json={"advance_s": 1}, headers=sent).status_code == 200
