"""Pushes that a repository's host reports at a pipeline's address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.pages.push_webhooks import parse_push

SHA = "0123456789abcdef0123456789abcdef01234567"
WEB = "/organizations/acme/pipelines/web"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(builds=20, days=2) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox_api(sandbox, api_client):
    return api_client(sandbox, sandbox.token(SCOPES))


@pytest.fixture
def address(sandbox_api):
    return sandbox_api(WEB).json()["provider"]["webhook_url"]


def push(ref="refs/heads/main", after=SHA, **head):
    return {"ref": ref, "after": after, "head_commit": {"message": "Say <b>it</b>", **head}}


def newest(sandbox_api):
    return sandbox_api(f"{WEB}/builds", per_page=1).json()[0]


def change(sandbox_api, **settings):
    assert sandbox_api.http.patch(WEB, json={"provider_settings": settings}).status_code == 200


def test_a_push_creates_a_build(sandbox_api, address):
    author = {"name": "Zoe Park", "email": "zoe@example.com"}
    response = httpx.post(address, json=push("refs/heads/feature/a", author=author))
    build = newest(sandbox_api)
    assert response.status_code == 201
    assert response.json() == {"id": build["id"], "number": build["number"]}
    fields = {key: build[key] for key in ("source", "branch", "commit", "message", "author", "creator", "state")}
    assert fields == {
        "source": "webhook", "branch": "feature/a", "commit": SHA, "message": "Say <b>it</b>", "author": author,
        "creator": None, "state": "scheduled",
    }  # fmt: skip


def test_the_address_explains_itself(address):
    response = httpx.get(address)
    assert response.status_code == 200
    assert "acme/web" in response.text
    assert httpx.put(address).status_code == 405


def test_the_response_says_why_a_push_is_not_built(sandbox_api, address):
    before = newest(sandbox_api)["id"]
    for report, why, wanted in (
        (push("refs/tags/v1"), "does not build tags", {}),
        (push(after="0" * 40), "Deleted", {}),
        (push("refs/heads/nobody/builds-this"), "branch configuration", {}),
        (push(), "does not build branches", {"build_branches": False}),
        (push(), "not built when code is pushed", {"trigger_mode": "none", "build_branches": True}),
        (push(), "archived", {"trigger_mode": "code"}),
    ):
        if wanted:
            change(sandbox_api, **wanted)
        if why == "archived":
            sandbox_api.http.post(f"{WEB}/archive")
        response = httpx.post(address, json=report)
        assert (response.status_code, why in response.json()["message"]) == (200, True), (why, response.text)
    assert newest(sandbox_api)["id"] == before


def test_tags_are_built_where_they_are_wanted(sandbox_api, address):
    change(sandbox_api, build_tags=True)
    assert httpx.post(address, json=push("refs/tags/v1.2")).status_code == 201
    assert newest(sandbox_api)["tag"] == "v1.2"


def test_a_commit_is_built_once_where_that_is_wanted(sandbox_api, address):
    assert [httpx.post(address, json=push()).status_code for _ in range(2)] == [201, 201]
    change(sandbox_api, skip_builds_for_existing_commits=True)
    assert httpx.post(address, json=push()).json() == {"message": "This commit has been built on this branch."}
    assert httpx.post(address, json=push("refs/heads/fix/b")).status_code == 201


def test_builds_of_a_deleted_branch_are_canceled_where_that_is_wanted(sandbox_api, address):
    for wanted, state in ((False, "scheduled"), (True, "canceled")):
        change(sandbox_api, cancel_deleted_branch_builds=wanted)
        httpx.post(address, json=push(f"refs/heads/fix/{state}"))
        httpx.post(address, json=push(f"refs/heads/fix/{state}", after="0" * 40))
        assert (newest(sandbox_api)["branch"], newest(sandbox_api)["state"]) == (f"fix/{state}", state)


def test_what_is_no_push_is_refused(sandbox_api, address):
    before = newest(sandbox_api)["id"]
    for sent in (b"", b"[]", b"{", b'{"ref": "main"}', b'{"ref": "refs/heads/", "after": "0"}', b"\xff", b"x" * 2**21):
        assert httpx.post(address, content=sent).status_code == (413 if len(sent) > 2**20 else 400), sent[:60]
    assert newest(sandbox_api)["id"] == before


values = st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner))


@pytest.mark.long
@settings(max_examples=50)
@given(ref=values | st.just("refs/heads/a"), after=values | st.just(SHA), head=values)
def test_any_report_is_read_or_refused(ref, after, head):
    with contextlib.suppress(HttpError):
        read = parse_push({"ref": ref, "after": after, "head_commit": head})
        assert (f"refs/{'tags' if read.is_tag else 'heads'}/{read.name}", read.sha) == (ref, after)
        assert isinstance(read.message, str)
