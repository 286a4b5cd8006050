"""Every function that takes or uses a secret: no traceback with variables shows it, however the call fails."""

from __future__ import annotations

import copy
import datetime as dt
import functools
import hashlib
import hmac
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import buildframe as bf
from buildframe import cli, receiver, webhooks
from buildframe.errors import BuildframeError
from buildframe.guards.secrets import Secret, confined, is_confined
from buildframe.http.token import Token
from buildframe.report.day import explain_day
from buildframe.sandbox_server import Sandbox
from buildframe.workspace import PipelineWorkspace, Workspace
from buildframe.workspace.build_queries import BuildQueries
from tests.conftest import Scripted, says
from tests.leaks import rich, shown_of, verbose

SECRET = "s3cret0123456789abcdef"
URL = "https://api.example.com"
NOW = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
BODY = b'{"event":"ping"}'
TOKEN_HEADER = "X-Buildkite-Token"


@pytest.fixture(autouse=True)
def _in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users keep them; what prints `os.environ` prints them."""
    monkeypatch.setenv("BUILDFRAME_TOKEN", SECRET)
    monkeypatch.setenv("BUILDFRAME_WEBHOOK_TOKEN", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def fails(call: Callable[[], Any], *kinds: type[BaseException]) -> None:
    with pytest.raises(kinds or BuildframeError) as caught:
        call()
    shown = shown_of(caught.value)
    assert str(caught.value) in shown
    assert SECRET not in shown
    assert "environ(" not in shown


def test_the_check_itself_sees_a_secret_in_a_variable(tmp_path: Path) -> None:
    source = tmp_path / "elsewhere.py"
    source.write_text("def fail(token):\n    raise ValueError(f'no {len(token)}')\n")
    namespace: dict[str, Any] = {}
    exec(compile(source.read_text(), source, "exec"), namespace)
    with pytest.raises(ValueError, match="no 22") as caught:
        namespace["fail"](SECRET)
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # type: ignore[union-attr]
    for leak in (verbose, rich, shown_of):
        assert SECRET in leak(caught.value)


def test_connect() -> None:
    for arguments in [
        {"base_url": "no address"},
        {"base_url": "http://api.example.com"},
        {"base_url": f"https://user:{SECRET}@api.example.com"},
        {"base_url": f"https://user:{SECRET}/more@api.example.com"},
        {"base_url": f"https://api.example.com/?token={SECRET}"},
        {"base_url": 5},
        {"base_url": URL, "graphql_url": "http://api.example.com/graphql"},
        {"base_url": URL, "graphql_url": f"https://user:{SECRET}@api.example.com/graphql"},
        {"base_url": URL, "token": f"{SECRET} {SECRET}"},
        {"base_url": URL, "token": [SECRET]},
        {"base_url": URL, "token": f"{SECRET}\ud800"},
    ]:
        fails(functools.partial(bf.connect, "acme", **arguments))  # type: ignore[arg-type]


def test_connect_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in [
        ("BUILDFRAME_URL", f"https://user:{SECRET}@api.example.com"),
        ("BUILDFRAME_GRAPHQL_URL", f"http://user:{SECRET}@api.example.com"),
        ("SSL_CERT_FILE", "/nowhere/certificates.pem"),
        ("HTTPS_PROXY", f"foo://user:{SECRET}@proxy.example.com"),
        ("HTTPS_PROXY", f"http://user:{SECRET}/more@proxy.example.com"),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            fails(lambda: bf.connect("acme"))


def test_an_interrupted_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Token, "check", _interrupt)
    fails(lambda: bf.connect("acme", base_url=URL, token=SECRET), KeyboardInterrupt)


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_proxy_that_was_set_later(monkeypatch: pytest.MonkeyPatch) -> None:
    ws = bf.connect("acme", base_url=URL)
    monkeypatch.setenv("HTTPS_PROXY", f"foo://user:{SECRET}@proxy.example.com")
    fails(ws.builds)
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")
    fails(lambda: ws.graphql("{ a }", url="https://graphql.example.com"))


SIGNED_LINK = f"https://127.0.0.1:1/v2/log?signature={SECRET}"
WITH_PASSWORD = f"https://user:{SECRET}@logs.example.com/v2/log"


def test_addresses_with_a_password_or_a_signature() -> None:
    calls: list[Callable[[Workspace], Any]] = [
        lambda ws: ws.graphql("{ a }", url=WITH_PASSWORD),
        lambda ws: ws.graphql("{ a }", url=SIGNED_LINK),
        lambda ws: ws.log(WITH_PASSWORD),
        lambda ws: ws.log(f"http://logs.example.com/?signature={SECRET}"),
        lambda ws: ws.log(SIGNED_LINK, deadline="never"),
        lambda ws: ws.get(WITH_PASSWORD),
        lambda ws: ws.table(SIGNED_LINK),
        lambda ws: ws.unblock(WITH_PASSWORD),
    ]
    for call in calls:
        fails(functools.partial(call, bf.connect("acme", base_url=URL)), bf.BadInput)


def test_a_log_that_lies_at_a_signed_address(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildframe.http.retry.MAX_ATTEMPTS", 1)
    server = scripted(says(b""))
    for link in (
        SIGNED_LINK,
        WITH_PASSWORD,
        f"http://logs.example.com/?signature={SECRET}",
        f"https://user:{SECRET}/x@logs.example.com/",
    ):
        server.responses = [says(b"", 302, Location=link)]
        ws = bf.connect("acme", base_url=server.url)
        fails(functools.partial(ws.log, f"{ws.base_url}/v2/log"))
    fails(ws.pipelines)


def test_a_log_that_cannot_be_read_at_a_signed_address(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildframe.http.retry.MAX_ATTEMPTS", 1)
    storage = scripted(says(b""))
    ws = bf.connect("acme", base_url=scripted(says(b"", 302, Location=f"{storage.url}/v2/log?key={SECRET}")).url)
    for status, body in [(200, b"{"), (403, b"no"), (404, b'{"message": "none"}'), (302, b"")]:
        around: Any = {"Location": f"/v2/log?signature={SECRET}"} if status == 302 else {}
        storage.responses = [says(body, status, Content_Type="application/json", **around)]
        fails(lambda: ws.log(f"{ws.base_url}/v2/log"))


def test_variables_of_an_action(scripted: Callable[..., Scripted]) -> None:
    for status in (201, 403, 422):
        web = bf.connect("acme", base_url=scripted(says(b"no JSON", status)).url).pipeline("web")
        fails(functools.partial(web.create_build, commit="HEAD", branch="main", env={"DEPLOY_KEY": SECRET}))


def test_the_signed_address_of_a_log(scripted: Callable[..., Scripted]) -> None:
    ws = bf.connect("acme", base_url=scripted(says(b'{"message": "none"}', 404)).url)
    for job in (f"ftp://logs.example.com/?signature={SECRET}", f"{ws.base_url}/v2/log?signature={SECRET}"):
        for of in (ws, ws.pipeline("web")):
            fails(functools.partial(of.log, {"raw_log_url": job}), bf.BadInput, bf.NotFound)


def test_methods_of_jobs_that_both_inherit_are_confined() -> None:
    """`get` takes a path of a workspace and nothing of a pipeline."""
    both = vars(Workspace).keys() & vars(PipelineWorkspace).keys()
    assert [name for name in both if not name.startswith("_")] == ["get"]
    assert all(is_confined(vars(BuildQueries)[name]) for name in ("log", "unblock"))


def test_variables_of_graphql(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"{}"))
    ws, query = bf.connect("acme", base_url=server.url), "mutation($key: String) { set(key: $key) }"
    refused: list[Any] = [{"key": SECRET, "n": object()}, {"keys": {SECRET}}, [SECRET]]
    for variables in refused:
        fails(functools.partial(ws.graphql, query, variables))
    assert server.requests == []
    for body in (b"{", b'{"errors": [{"message": "no"}]}', b"{}"):
        server.responses = [says(body)]
        fails(functools.partial(ws.graphql, query, {"key": SECRET}))


def test_a_list_that_echoes_the_token(scripted: Callable[..., Scripted]) -> None:
    body = f'[{{"id": "a", "number": 1, "created_at": "{"x" * 50}{SECRET}"}}]'.encode()
    ws = bf.connect("acme", base_url=scripted(says(body)).url, token=SECRET)
    for name in ("builds", "history", "pipelines"):
        with pytest.warns(UserWarning, match="`created_at` of") as warned:
            found = getattr(ws, name)(progress=False)
        frame = found.builds if name == "history" else found
        assert frame["created_at"].isna().all()
        shown = f"{warned[0].message} {frame.attrs}"
        assert "x" * 50 in shown
        assert SECRET[:6] not in shown


def test_the_query_of_any_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the error itself does not show the address."""
    monkeypatch.setattr("buildframe.http.client.Client.send", _interrupt)
    ws = bf.connect("acme", base_url=URL)
    for read in (ws.get, ws.table):
        fails(functools.partial(read, f"/organizations?access_token={SECRET}"), KeyboardInterrupt)
        fails(functools.partial(read, "/organizations", access_token=SECRET), KeyboardInterrupt)


def _signature(body: bytes, at: dt.datetime) -> str:
    stamp = str(int(at.timestamp()))
    signature = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"timestamp={stamp},signature={signature}"


SIGNED = {"X-Buildkite-Signature": _signature(BODY, NOW)}
WITH_TOKEN = {TOKEN_HEADER: SECRET}
OTHER = {TOKEN_HEADER: "another"}
NESTED = b"[" * 100_000


def test_webhooks() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: webhooks.verify(OTHER, BODY, SECRET),
        lambda: webhooks.verify({}, BODY, SECRET),
        lambda: webhooks.verify(SIGNED, b"{}", SECRET, now=NOW),
        lambda: webhooks.verify(SIGNED, BODY, SECRET, now=NOW + dt.timedelta(hours=1)),
        lambda: webhooks.verify({"X-Buildkite-Signature": SECRET}, BODY, SECRET),
        lambda: webhooks.verify([(TOKEN_HEADER, SECRET), (TOKEN_HEADER, "b")], BODY, SECRET),
        lambda: webhooks.verify({TOKEN_HEADER: [SECRET]}, BODY, SECRET),  # type: ignore[dict-item]
        lambda: webhooks.verify(5, BODY, SECRET),  # type: ignore[arg-type]
        lambda: webhooks.verify(WITH_TOKEN, "text", SECRET),  # type: ignore[arg-type]
        lambda: webhooks.verify(WITH_TOKEN, BODY, f"{SECRET}\n"),
        lambda: webhooks.verify(WITH_TOKEN, BODY, [SECRET]),  # type: ignore[arg-type]
        lambda: webhooks.verify(WITH_TOKEN, BODY, SECRET, now="yesterday, maybe"),
        lambda: webhooks.verify(WITH_TOKEN, BODY, SECRET, max_age=300),  # type: ignore[arg-type]
        lambda: webhooks.signed_at([("X-Buildkite-Signature", SECRET), ("X-Buildkite-Signature", "b")]),
        lambda: webhooks.parse(b"{", WITH_TOKEN),
        lambda: webhooks.parse(b"{}", WITH_TOKEN),
        lambda: webhooks.parse(NESTED, WITH_TOKEN),
        lambda: webhooks.parse(b'{"event":"job.started","job":5}', WITH_TOKEN),
        lambda: webhooks.parse("text", WITH_TOKEN),  # type: ignore[arg-type]
        lambda: webhooks.parse(BODY, WITH_TOKEN, received_at="yesterday, maybe"),
    ]
    for call in calls:
        fails(call)
    fails(lambda: webhooks.verify([SECRET], BODY, SECRET), ValueError)  # type: ignore[list-item]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> bf.Store:
    kept = bf.Store(tmp_path_factory.mktemp("stores") / "ci")
    with bf.sandbox(builds=30, days=2) as ws:
        kept.sync(ws)
    return kept


def test_the_receiver_refuses_secrets_and_settings(store: bf.Store) -> None:
    refused: list[Any] = [SECRET, [f"{SECRET} "], [SECRET, ""], [SECRET, 5], [[SECRET]]]
    for secrets in refused:
        fails(functools.partial(receiver.application, store, secrets))
    settings: list[dict[str, Any]] = [{"every": 0}, {"every": "often"}, {"names": "X"}]
    for wrong in settings:
        call = functools.partial(receiver.application, store, [SECRET], **wrong)
        fails(call, BuildframeError, TypeError, AttributeError)


def test_the_receiver_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(receiver.app)
    monkeypatch.setenv("BUILDFRAME_STORE", str(tmp_path / "none"))
    fails(receiver.app)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDFRAME_URL", f"https://user:{SECRET}@api.example.com")
    for command in (["receive"], ["sync"], ["report", str(tmp_path / "pages")]):
        assert cli.main([command[0], str(tmp_path / "none"), *command[1:]]) == 1
    assert cli.main(["export", str(tmp_path / "builds.csv"), "builds"]) == 1
    assert SECRET not in "".join(capsys.readouterr())


@pytest.mark.long
def test_the_command_when_something_unforeseen_fails(
    store: bf.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildframe.receiver.server.serve", _fail)
    fails(lambda: cli.main(["receive", store.url]), ZeroDivisionError)
    monkeypatch.setattr("buildframe.http.client.Client.send", _fail)
    monkeypatch.setenv("BUILDFRAME_ORG", "acme")
    monkeypatch.setenv("BUILDFRAME_URL", URL)
    fails(lambda: cli.main(["sync", str(tmp_path / "new")]), ZeroDivisionError)


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("unforeseen")


def test_the_sandbox() -> None:
    wrong: list[dict[str, Any]] = [
        {"url": "no address"},
        {"url": "http://elsewhere.example.com"},
        {"url": "http://127.0.0.1:9", "events": "build.*"},
        {"url": "http://127.0.0.1:9", "token": f"{SECRET}\n"},
        {"url": "http://127.0.0.1:9", "organization": "none"},
    ]
    with Sandbox(builds=5, days=1) as sandbox:
        for each in wrong:
            fails(functools.partial(sandbox.webhook, **{"token": SECRET, **each}), Exception)


OPTIONS = {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ACCESS_KEY_ID": "id", "AWS_REGION": "us-east-1"}


def test_the_store() -> None:
    local = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"}
    stores: list[tuple[str, Any]] = [
        ("s3://bucket/ci", {**OPTIONS, **local, "max_retries": "0", "retry_timeout": "1s"}),
        ("s3://bucket/ci", {**OPTIONS, "AWS_ENDPOINT_URL": 5}),
        ("s3://bucket/ci", [SECRET]),
        ("", OPTIONS),
        ("foo://bucket/ci", OPTIONS),
        (f"s3://user:{SECRET}@bucket/ci", {}),
    ]
    for url, options in stores:
        fails(lambda url=url, options=options: bf.Store(url, storage_options=options).builds(), Exception)


def test_bad_input_of_functions_with_whole_tracebacks() -> None:
    """Stores and workspaces hold secrets; the frames of these functions are shown."""
    store, ws = bf.Store("s3://bucket/ci", storage_options=OPTIONS), bf.connect("acme", base_url=URL)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda store, ws: store.import_exports(f"s3://user:{SECRET}@bucket/x"),
        lambda store, ws: bf.report.read(f"s3://user:{SECRET}@bucket/x", organization="acme"),
        lambda store, ws: bf.report.read(f"s3://user:{SECRET}@bucket/x", days="x"),
        lambda store, ws: explain_day(f"s3://user:{SECRET}@bucket/x", NOW.date()),
        lambda store, ws: bf.save(f"s3://user:{SECRET}@bucket/x.csv", 5),  # type: ignore[arg-type]
        lambda store, ws: bf.load(f"s3://user:{SECRET}@bucket/x"),
        lambda store, ws: store.import_exports("/none", storage_options={"key": SECRET, "n": 5}),
        lambda store, ws: store.sync(ws, since="never"),
        lambda store, ws: store.sync(ws, env=5),
        lambda store, ws: store.clean("never"),
        lambda store, ws: store.builds(columns=5),
        lambda store, ws: ws.builds(created_from="never"),
        lambda store, ws: ws.pipeline("a/b"),
    ]
    for call in calls:
        fails(functools.partial(call, store, ws), bf.BadInput)


def test_unforeseen_errors_of_functions_with_a_location_keep_their_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildframe.store.files.check_path", _fail)
    with pytest.raises(ZeroDivisionError) as caught:
        bf.load("builds.parquet")
    assert caught.traceback[-1].name == "_fail"


def test_an_interrupted_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalake.DeltaTable.__init__", _interrupt)
    fails(lambda: bf.Store("s3://bucket/ci", storage_options=OPTIONS).builds(), KeyboardInterrupt)


def test_a_secret_is_hidden_and_not_pickled() -> None:
    assert f"{Secret(SECRET)} {[Secret(SECRET)]} {Token(SECRET)}" == "<secret> [<secret>] <token>"
    with pytest.raises(TypeError, match="a secret cannot be pickled"):
        pickle.dumps(Secret(SECRET))
    with pytest.raises(TypeError, match="a secret cannot be copied"):
        copy.deepcopy(Secret(SECRET))


def test_a_confined_function_returns_and_is_documented_as_ever() -> None:
    assert confined(json.loads)("[1]") == [1]
    assert "BUILDFRAME_TOKEN" in str(bf.connect.__doc__)
    assert os.environ["BUILDFRAME_TOKEN"] == SECRET
