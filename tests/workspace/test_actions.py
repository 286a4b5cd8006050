"""The request of every action, and its outcome if the response is lost, over real HTTP on loopback."""

from __future__ import annotations

import inspect
import itertools
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.http import retry
from buildframe.http.retry import MAX_ATTEMPTS
from buildframe.workspace import PipelineWorkspace, Workspace
from buildframe.workspace.signatures import NOT_SENT
from tests.conftest import Scripted, hang_up, says
from tests.http.test_client import TOKEN, connected
from tests.leaks import shown_of
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
TEAM, UUID = "0190b3aa-0000-7000-8000-0000000000aa", "0190b3aa-0000-7000-8000-0000000000bb"
ACME, WEB = "/v2/organizations/acme", "/v2/organizations/acme/pipelines/web"
STEP = f"{WEB}/builds/7/jobs/{UUID}/unblock"
NEW = {"name": "Web", "cluster_id": None, "repository": "git@git.example.com:acme/web.git", "steps": []}
BUILD = b'{"id":"b7","number":7,"state":"scheduled","rebuilt_from":{"number":6}}'
CANCELED = BUILD.replace(b"scheduled", b"canceling")
PIPELINE = b'{"id":"p","slug":"web","name":"Web"}'
LEVEL = {"access_level": "read_only"}
TEAM_PIPELINE = b'{"pipeline_id":"%s"}' % UUID.encode()


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


Call = Callable[[Workspace], Any]
NO_BODY = {"delete_pipeline", "add_webhook", "delete_team_pipeline"}
ACTIONS: dict[str, tuple[Call, str, str, Any, int, bytes]] = {
    "create_build": (
        lambda ws: ws.pipeline("web").create_build(commit="HEAD", branch="main", env={"A": "ü"}),
        "POST", f"{WEB}/builds", {"commit": "HEAD", "branch": "main", "env": {"A": "ü"}}, 201, BUILD,
    ),
    "cancel_build": (lambda ws: ws.pipeline("web").cancel(7), "PUT", f"{WEB}/builds/7/cancel", None, 200, CANCELED),
    "rebuild_build": (lambda ws: ws.pipeline("web").rebuild(6), "PUT", f"{WEB}/builds/6/rebuild", None, 200, BUILD),
    "unblock_job": (
        lambda ws: ws.pipeline("web").unblock(f"{ws.base_url}{STEP}", fields={"reason": "ü"}),
        "PUT", STEP, {"fields": {"reason": "ü"}}, 200, b'{"id":"%s","state":"unblocked"}' % UUID.encode(),
    ),
    "retry_job": (
        lambda ws: ws.pipeline("web").retry_job(f"{ws.base_url}{WEB}/builds/7/jobs/{UUID}/log"),
        "PUT", f"{WEB}/builds/7/jobs/{UUID}/retry", None, 200, b'{"id":"%s","state":"scheduled"}' % TEAM.encode(),
    ),
    "create_pipeline": (
        lambda ws: ws.create_pipeline(**NEW), "POST", f"{ACME}/pipelines", NEW, 201, PIPELINE,
    ),
    "update_pipeline": (
        lambda ws: ws.pipeline("web").update(cluster_id=None, tags=["a"]),
        "PATCH", WEB, {"cluster_id": None, "tags": ["a"]}, 200, PIPELINE,
    ),
    "archive_pipeline": (lambda ws: ws.pipeline("web").archive(), "POST", f"{WEB}/archive", None, 200, PIPELINE),
    "unarchive_pipeline": (lambda ws: ws.pipeline("web").unarchive(), "POST", f"{WEB}/unarchive", None, 200, PIPELINE),
    "delete_pipeline": (lambda ws: ws.pipeline("web").delete(), "DELETE", WEB, None, 204, b""),
    "add_webhook": (lambda ws: ws.pipeline("web").add_webhook(), "POST", f"{WEB}/webhook", None, 201, b""),
    "create_team_pipeline": (
        lambda ws: ws.create_team_pipeline(TEAM, pipeline_id=UUID, access_level="read_only"),
        "POST", f"{ACME}/teams/{TEAM}/pipelines", {"pipeline_id": UUID} | LEVEL, 201, TEAM_PIPELINE,
    ),
    "update_team_pipeline": (
        lambda ws: ws.update_team_pipeline(TEAM, UUID, access_level="read_only"),
        "PATCH", f"{ACME}/teams/{TEAM}/pipelines/{UUID}", LEVEL, 200, TEAM_PIPELINE,
    ),
    "delete_team_pipeline": (
        lambda ws: ws.delete_team_pipeline(TEAM, UUID),
        "DELETE", f"{ACME}/teams/{TEAM}/pipelines/{UUID}", None, 204, b"",
    ),
}  # fmt: skip


def test_no_action_is_left_out() -> None:
    assert set(ACTIONS) == {entry.name for entry in spec.ENDPOINTS if entry.method != "GET"}


def test_the_request_of_each_action(scripted: Start) -> None:
    server, wanted, found = scripted(hang_up), {}, {}
    returns = {entry.name: entry.returns or type(None) for entry in spec.ENDPOINTS}
    for name, (call, method, path, body, status, response) in ACTIONS.items():
        for sent in (server.methods, server.requests, server.bodies, server.headers):
            sent.clear()
        server.responses = [says(response, status)]
        result = call(connected(server))
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {TOKEN}"}
        bodies = [json.loads(sent) if sent else None for sent in server.bodies]
        kinds = [headers.get("Content-Type") for headers in server.headers]
        found[name] = server.methods[:], server.requests[:], bodies, kinds, type(result)
        wanted[name] = [method], [path], [body], [None if body is None else "application/json"], returns[name]
    assert found == wanted


def test_any_status_of_success_is_accepted(scripted: Start) -> None:
    server = scripted(hang_up)
    for (name, (call, *_, response)), status in itertools.product(ACTIONS.items(), (200, 201, 202)):
        server.responses = [says(b"" if name in NO_BODY else response, status)]
        call(connected(server))


def test_an_unexpected_body_of_an_action_without_a_record_is_an_unknown_outcome(scripted: Start) -> None:
    server = scripted(hang_up)
    for name in sorted(NO_BODY):
        call, *_, status, _ = ACTIONS[name]
        responses = [says(b"{}", 299), says(b"<html>sign in</html>", 200), says(b"<html>", 201)]
        for response in responses if status == 204 else [*responses, says(b'{"a":', status)]:
            server.responses = [response]
            with pytest.raises(bf.OutcomeUnknown, match="Response: 2"):
                call(connected(server))


LOST: dict[str, Callable[..., None]] = {
    "reset": hang_up,
    "cut body": says(b'{"id":"b7","number":7}', cut=9),
    "500": says(b'{"message":"oops"}', 500),
    "502": says(b"<html>bad gateway</html>", 502),
    "503": says(b"", 503, Retry_After="0"),
    "unreadable": says(b"<html>hello</html>"),
    "redirect": says(b"", 303, Location="/elsewhere"),
    "time-out": says(b'{"message":"too slow"}', 408),
    "closed": says(b'{"message":"the client closed the connection"}', 499),
}
REFUSED = {401: bf.Unauthorized, 403: bf.Forbidden, 404: bf.NotFound, 410: bf.ServiceError, 422: bf.Invalid}
SOME = ("create_build", "unblock_job", "delete_pipeline")
"""Actions that return another record, the same one, and nothing; all others take the same way."""


def test_an_action_whose_response_is_lost_is_never_sent_again(scripted: Start) -> None:
    """Each error says where to look: also of all other actions, after one of the faults."""
    server = scripted(hang_up)
    others = sorted(ACTIONS.keys() - {*SOME, "cancel_build"})
    for name, fault in [*itertools.product(SOME, LOST), *((name, "502") for name in others)]:
        call, method, path, *_ = ACTIONS[name]
        server.responses, before = [LOST[fault]], len(server.requests)
        words = f"(?s)Request: {method} {path}\n.*Response: .*(Look|Check)"
        with pytest.raises(bf.OutcomeUnknown, match=words) as caught:
            call(connected(server))
        assert len(server.requests) == before + 1, (name, fault)
        assert not caught.value.retryable
        assert TOKEN not in shown_of(caught.value), (name, fault)


def test_the_error_of_a_lost_response_describes_it_and_the_next_step(scripted: Start) -> None:
    server = scripted(hang_up)

    def lose(fault: str) -> object:
        server.responses = [LOST[fault]]
        return ACTIONS["create_build"][0](connected(server))

    messages = [
        ("500", r"Response: 500: oops.*builds\(branch='main', created_from='1h'\)"),
        ("502", "Response: 502: <html>bad gateway"),
        ("reset", r"Response: none \(Server disconnected"),
        ("unreadable", "Response: 200, which cannot be read"),
    ]
    assert wrong_refusals(messages, lose, bf.OutcomeUnknown) == {}


def test_a_refusal_is_raised_without_a_retry(scripted: Start) -> None:
    server = scripted(hang_up)
    others = sorted(ACTIONS.keys() - set(SOME))
    for name, status in [*itertools.product(SOME, REFUSED), *((name, 422) for name in others)]:
        server.responses = [says(b'{"message":"because"}', status)]
        server.methods.clear()
        with pytest.raises(REFUSED[status], match=f"{status}: because"):
            ACTIONS[name][0](connected(server))
        sent = [method for method in server.methods if method != "GET"]  # a GET looks for the nearest pipeline
        assert len(sent) == 1, (name, status)


def test_a_rate_limited_action_waits_and_is_sent_again(scripted: Start) -> None:
    slow_down = says(b'{"message":"slow down","reset":0}', 429)
    for name in SOME:
        call, *_, status, response = ACTIONS[name]
        server = scripted(slow_down, says(response, status))
        call(connected(server))
        assert len(server.requests) == 2
        assert server.bodies[0] == server.bodies[1]
        lasting = scripted(slow_down)
        with pytest.raises(bf.RateLimited):
            call(connected(lasting))
        assert len(lasting.requests) == MAX_ATTEMPTS


def test_an_action_on_a_missing_host_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    ws = bf.connect("acme", base_url=url, token=TOKEN)
    assert (
        wrong_refusals([(name, "No response") for name in SOME], lambda name: ACTIONS[name][0](ws), bf.Unreachable)
        == {}
    )


def test_an_action_that_was_never_sent_is_sent_again(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server, stream = scripted(says(BUILD, 201)), httpx.Client.stream
    failures = [kind("x") for kind in (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)]

    def first_fail(*arguments: Any, **keywords: Any) -> Any:
        if failures:
            raise failures.pop()
        return stream(*arguments, **keywords)

    monkeypatch.setattr(httpx.Client, "stream", first_fail)
    assert ACTIONS["create_build"][0](connected(server)).number == 7
    assert not failures
    assert len(server.requests) == 1


def test_an_action_that_may_have_been_sent_is_not_sent_again(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    ws, tries = connected(scripted(says(BUILD, 201))), []
    kinds = (httpx.ReadTimeout, httpx.WriteTimeout, httpx.WriteError, httpx.RemoteProtocolError)
    for kind in kinds:

        def fail(*_: Any, kind: type[httpx.HTTPError] = kind, **__: Any) -> httpx.Response:
            tries.append(kind)
            raise kind("x")

        monkeypatch.setattr(httpx.Client, "stream", fail)
        with pytest.raises(bf.OutcomeUnknown):
            ACTIONS["create_build"][0](ws)
    assert tries == list(kinds)


def test_a_cancel_whose_response_is_lost_fetches_the_build(scripted: Start) -> None:
    for fault, state in [("reset", "canceled"), *((fault, "canceling") for fault in LOST)]:
        server = scripted(LOST[fault], says(b"", 503), says(b'{"id":"b7","number":7,"state":"%s"}' % state.encode()))
        assert connected(server).pipeline("web").cancel(7).state == state
        assert server.methods == ["PUT", "GET", "GET"], fault
        assert server.requests[-1] == f"{WEB}/builds/7?include_retried_jobs=true"


def test_a_cancel_that_did_not_happen_raises_an_error(scripted: Start) -> None:
    server = scripted(hang_up, says(b'{"id":"b7","number":7,"state":"running"}'))
    with pytest.raises(bf.OutcomeUnknown, match=r"(?s)again is safe.*'running' now"):
        connected(server).pipeline("web").cancel(7)
    with pytest.raises(bf.OutcomeUnknown, match=r"(?s)again is safe.*: No response"):
        connected(scripted(hang_up)).pipeline("web").cancel(7)


def test_a_cancel_whose_response_has_another_state_fetches_the_build(scripted: Start) -> None:
    running = CANCELED.replace(b"canceling", b"running")
    server = scripted(says(running), says(CANCELED))
    assert connected(server).pipeline("web").cancel(7).state == "canceling"
    assert server.methods == ["PUT", "GET"]
    with pytest.raises(bf.OutcomeUnknown, match=r"(?s)is 'running'.*'running' now"):
        connected(scripted(says(running))).pipeline("web").cancel(7)


def test_a_renamed_pipeline_uses_its_new_slug(scripted: Start) -> None:
    server = scripted(says(b'{"id":"p","slug":"site"}'))
    web = connected(server).pipeline("web")
    web.update(name="Site")
    assert web.slug == "site"
    web.get()
    assert server.requests == [WEB, f"{ACME}/pipelines/site"]
    assert repr(web).startswith("<PipelineWorkspace acme/site at")


def test_actions_belong_to_an_organization(scripted: Start) -> None:
    server = scripted(says(b"{}"))
    everywhere = bf.connect(base_url=server.url, token=TOKEN)
    calls: list[Call] = [
        lambda ws: ws.set_team("web", TEAM, "read_only"),
        lambda ws: ws.remove_team("web", TEAM),
        *(call for call, *_ in ACTIONS.values()),
    ]
    assert wrong_refusals([(call, "BUILDFRAME_ORG") for call in calls], lambda call: call(everywhere)) == {}
    assert not server.requests


def test_a_build_number_from_a_frame_is_accepted(scripted: Start) -> None:
    server = scripted(says(b'[{"id":"b","number":7,"created_at":"2026-10-30T10:00:00Z"}]'), says(CANCELED))
    ws = connected(server)
    assert ws.pipeline("web").cancel(ws.builds()["number"].iloc[0]).number == 7


def test_completion_knows_the_properties_and_help_explains_them() -> None:
    for method, endpoint in [
        (PipelineWorkspace.create_build, spec.create_build),
        (PipelineWorkspace.update, spec.update_pipeline),
        (Workspace.create_pipeline, spec.create_pipeline),
        (Workspace.create_team_pipeline, spec.create_team_pipeline),
        (Workspace.update_team_pipeline, spec.update_team_pipeline),
    ]:
        parameters = inspect.signature(method).parameters
        for entry in endpoint.properties:
            assert parameters[entry.name].default is (inspect.Parameter.empty if entry.required else NOT_SENT)
            assert entry.doc.partition(" (")[0].lower() in str(method.__doc__).lower()
