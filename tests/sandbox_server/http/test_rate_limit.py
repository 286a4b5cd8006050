"""Limits of requests, and tokens."""

from __future__ import annotations

import time

import httpx
import pytest

from buildframe.errors import BadInput
from buildframe.sandbox_server import Quota, Sandbox

ACME = "/organizations/acme/builds"


def test_limits_count_down_and_refuse_and_recover():
    with Sandbox(builds=5, days=1, quota=Quota(organization=4, user=3, window=1.0)) as sandbox:
        tokens = [sandbox.token(), sandbox.token()]

        def send(token):
            return httpx.get(f"{sandbox.url}/v2{ACME}", headers={"Authorization": f"Bearer {token}"})

        time.sleep(1 - time.monotonic() % 1)  # windows start at whole seconds
        mine = [send(tokens[0]) for _ in range(4)]
        other = send(tokens[1])
        assert [response.status_code for response in mine] == [200, 200, 200, 429]
        assert [response.headers["RateLimit-User-Remaining"] for response in mine] == ["2", "1", "0", "0"]
        body = mine[3].json()
        assert {key: body[key] for key in ("scope", "limit", "current", "reset")} == {
            "scope": "rest_user",
            "limit": 3,
            "current": 4,
            "reset": 1,
        }
        assert (other.status_code, other.json()["scope"]) == (429, "rest")
        assert other.headers["RateLimit-Limit"] == "4"
        time.sleep(1.01)
        assert send(tokens[0]).status_code == 200


def test_the_limits_of_the_hosted_service_are_at_hand():
    assert Quota(organization=200, user=50, window=60.0) == Quota.REAL


def test_tokens_are_random_and_checked(small):
    assert small.token() != small.token()
    for wrong in ({"scopes": ["read_everything"]}, {"organizations": ["nowhere"]}, {"scopes": "read_builds"}):
        with pytest.raises(BadInput):
            small.token(**wrong)
