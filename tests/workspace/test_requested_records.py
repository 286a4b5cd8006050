"""A response that contains another record than the requested one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.http import retry
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.http.test_client import connected
from tests.leaks import shown_of
from tests.refusals import wrong_refusals

UUID, OTHER = "0190b3aa-0000-7000-8000-0000000000aa", "0190b3aa-0000-7000-8000-0000000000bb"
API = "https://ci.example.com/v2/organizations"
BUILD = '{"id":"b","number":7,"state":"canceled","url":"%s"}'
PIPELINE = '{"id":"p","slug":"web"}'
WITH_ID, TEAM_PIPELINE = f'{{"id":"{UUID}"}}', f'{{"pipeline_id":"{UUID}"}}'
REQUESTED: dict[str, tuple[Callable[[Workspace], Any], str]] = {
    "get_build": (lambda ci: ci.pipeline("web").build(7), BUILD % f"{API}/acme/pipelines/web/builds/7"),
    "cancel_build": (lambda ci: ci.pipeline("web").cancel(7), BUILD % f"{API}/acme/pipelines/web/builds/7"),
    "unblock_job": (
        lambda ci: ci.unblock(f"{ci.base_url}/v2/organizations/acme/pipelines/web/builds/7/jobs/{UUID}/unblock"),
        WITH_ID,
    ),
    "get_job": (lambda ci: ci.pipeline("web").job(7, UUID), WITH_ID),
    "get_pipeline": (lambda ci: ci.pipeline("web").get(), '{"slug":"web"}'),
    "archive_pipeline": (lambda ci: ci.pipeline("web").archive(), PIPELINE),
    "unarchive_pipeline": (lambda ci: ci.pipeline("web").unarchive(), PIPELINE),
    "get_member": (lambda ci: ci.member(UUID), WITH_ID),
    "get_team_pipeline": (lambda ci: ci.team_pipeline(UUID, UUID), TEAM_PIPELINE),
    "update_team_pipeline": (
        lambda ci: ci.update_team_pipeline(UUID, UUID, access_level="read_only"),
        TEAM_PIPELINE,
    ),
}
CHANGES = [('"web"', '"api"'), ("/acme/", "/globex/"), ("/web/", "/api/"), ("7", "8"), (UUID, OTHER)]
OTHERS = [
    (name, body.replace(*change)) for name, (_, body) in REQUESTED.items() for change in CHANGES if change[0] in body
]


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


CREATE = {"commit": "HEAD", "branch": "main"}
NEW = {"name": "Web", "cluster_id": None, "repository": "git@git.example.com:acme/web.git", "steps": []}


def test_a_changed_record_that_cannot_be_the_result_is_an_unknown_outcome(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"{}"))
    calls: list[tuple[Callable[[Workspace], Any], str]] = [
        (lambda ci: ci.pipeline("web").create_build(**CREATE), BUILD % f"{API}/acme/pipelines/api/builds/8"),
        (lambda ci: ci.pipeline("web").rebuild(6), BUILD % f"{API}/acme/pipelines/api/builds/8"),
        (lambda ci: ci.pipeline("web").update(description="x"), '{"id":"p","slug":"api"}'),
        (lambda ci: ci.pipeline("web").update(name="x"), '{"id":"p","slug":"a/b"}'),
        (lambda ci: ci.pipeline("web").update(name="x"), "{}"),
        (lambda ci: ci.create_pipeline(**NEW), '{"message":"Please log in."}'),
        (lambda ci: ci.create_team_pipeline(UUID, pipeline_id=UUID, access_level="read_only"), "{}"),
    ]

    def send(one: tuple[Callable[[Workspace], Any], str]) -> object:
        server.responses = [says(one[1].encode())]
        return one[0](connected(server))

    assert wrong_refusals([(one, "") for one in calls], send, bf.OutcomeUnknown) == {}


SECRET = "bkua_0123456789secret"


def test_errors_about_a_response_that_echoes_the_token_do_not_show_it(scripted: Callable[..., Scripted]) -> None:
    calls: list[tuple[Callable[[Workspace], Any], str]] = [
        (lambda ci: ci.pipeline("web").history_of(7), '{"id":"b","number":8,"message":"TOKEN"}'),
        (lambda ci: ci.pipeline("web").cancel(7), '{"id":"b","number":7,"state":"TOKEN"}'),
        (lambda ci: ci.pipeline("web").cancel(7), '{"id":"b","number":7,"state":"running","message":"TOKEN"}'),
        (lambda ci: ci.set_team("web", UUID, "read_only"), '{"data":{"pipeline":{"id":5,"teams":"TOKEN"}}}'),
        (lambda ci: ci.pipeline("web").update(name="x"), '{"id":"p","slug":"a/TOKEN"}'),
    ]
    for call, body in calls:
        server = scripted(says(body.replace("TOKEN", SECRET).encode()))
        with pytest.raises(bf.BuildframeError) as failed:
            call(bf.connect("acme", base_url=server.url, token=SECRET))
        assert SECRET not in shown_of(failed.value), body


@pytest.mark.long
def test_errors_about_a_page_whose_link_contains_the_token_do_not_show_it(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 2)
    echoes = ("access_token={}", "authorization=Bearer%20{}", "t=a,{}", "{}")
    thens = (says(b"{"), says(b"", 404))
    for echo, then in [*((echo, thens[1]) for echo in echoes), (echoes[0], thens[0])]:
        link = f"</v2/organizations/acme/pipelines?page=2&{echo.format(SECRET)}>; rel=next"
        server = scripted(says(b'[{"id":"a","slug":"web"}]', Link=link), then)
        with pytest.raises(bf.BuildframeError) as failed:
            bf.connect("acme", base_url=server.url, token=SECRET).pipelines(progress=False)
        assert SECRET not in shown_of(failed.value), (echo, then)
        assert "page=2" in server.requests[-1]


def test_no_operation_is_left_out() -> None:
    returns_another = {
        "create_build",
        "rebuild_build",
        "create_pipeline",
        "update_pipeline",
        "create_team_pipeline",
        "retry_job",
    }
    returns_one = {entry.name for entry in spec.ENDPOINTS if entry.returns and not entry.lists}
    assert set(REQUESTED) == {entry.name for entry in spec.ENDPOINTS if entry.key} == returns_one - returns_another


def test_the_requested_record_is_returned(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"{}"))
    for name, (call, body) in REQUESTED.items():
        for sent in (body, body.replace('"web"', '"WEB"')):
            server.responses = [says(sent.encode())]
            assert call(connected(server)), name


def test_another_record_is_refused(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"{}"))
    methods = {entry.name: entry.method for entry in spec.ENDPOINTS}
    calls = {name: call for name, (call, _) in REQUESTED.items()}
    calls["history"] = lambda ci: ci.pipeline("web").history_of(7)
    others = [*OTHERS, *(("history", body) for name, body in OTHERS if name == "get_build")]

    def send(one: tuple[str, str]) -> object:
        server.responses = [says(one[1].encode())]
        return calls[one[0]](connected(server))

    reads = [one for one in others if methods.get(one[0], "GET") == "GET"]
    words = "another record than the requested one"
    assert wrong_refusals([(one, words) for one in reads], send, bf.Malformed) == {}
    actions = [one for one in others if one not in reads]
    assert wrong_refusals([(one, words) for one in actions], send, bf.OutcomeUnknown) == {}
    assert len(others) > 20


def test_the_url_says_which_build_it_is(scripted: Callable[..., Scripted]) -> None:
    """A recorded response to a cancellation has the number of another build beside the URL of the requested one."""
    for name in ("get_build", "cancel_build"):
        call, body = REQUESTED[name]
        assert call(connected(scripted(says(body.replace('"number":7', '"number":4').encode()))))
