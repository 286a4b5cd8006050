"""Time limits: a request ends in time however slowly its response comes, and so does a call with a deadline."""

from __future__ import annotations

import datetime as dt
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import tenacity
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import buildframe as bf
from buildframe import cli, spec
from buildframe.cli import _parser
from buildframe.http import protocol, retry
from buildframe.http.budget import RequestBudget, within_deadline
from buildframe.http.client import Client
from buildframe.http.retry import MAX_CONNECTS, fetch
from buildframe.http.token import Token
from buildframe.workspace import Workspace
from tests.conftest import Scripted, read_documents, says
from tests.guards.public_methods import METHODS, called, options_of
from tests.http.test_connections import open_sockets, until
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"
PIPELINES = protocol.request_for(spec.list_pipelines, "acme")
CANCEL = protocol.request_for(spec.cancel_build, "acme", "web", 7)
BOUNDED = 10.0  # seconds; far more than a limit of 0.3 s takes, and far less than a response that drips
DRIPS = 600  # pieces, one each 0.1 s


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def dripping(before: bytes, piece: bytes = b" ") -> Callable[[BaseHTTPRequestHandler], None]:
    """Sends `before`, then a piece each tenth of a second for a minute."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        with suppress(OSError):
            handler.wfile.write(before)
            for _ in range(DRIPS):
                time.sleep(0.1)
                handler.wfile.write(piece)

    return drip


DRIPPING = {
    "status": dripping(b"HTTP/1.1 200 ", b"O"),
    "headers": dripping(b"HTTP/1.1 200 OK\r\n", b"X-Pad: x\r\n"),
    "informational": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n["),
    "chunks": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "until closed": dripping(b"HTTP/1.1 200 OK\r\n\r\n"),
}


def listed(client: Client, budget: RequestBudget | None = None) -> list[dict[str, Any]]:
    return fetch(client, PIPELINES, read_documents, budget)


@contextmanager
def ends_soon() -> Iterator[None]:
    """What is in it takes few seconds, and leaves no thread and no open connection."""
    began, threads = time.monotonic(), set(threading.enumerate())
    yield
    assert time.monotonic() - began < BOUNDED
    left = {thread for thread in set(threading.enumerate()) - threads if not thread.name.startswith("Thread-")}
    assert not left  # a server's own threads are named so


@pytest.mark.parametrize("kind", ["headers", pytest.param("chunks", marks=pytest.mark.long)])
def test_a_slow_response_ends_at_the_time_limit(scripted: Start, kind: str) -> None:
    server, budget = scripted(DRIPPING[kind]), RequestBudget()
    sockets = open_sockets()
    with closing(Client(server.url, Token(TOKEN), timeout=0.3)) as client, ends_soon():
        with pytest.raises(bf.Unreachable, match=r"0\.3 s") as caught:
            listed(client, budget)
        assert until(lambda: open_sockets() <= sockets)
    assert budget.requests == len(server.requests) == MAX_CONNECTS
    assert re.fullmatch(rf"Tried {MAX_CONNECTS} times in [1-9] s\.", *caught.value.__notes__)


@pytest.mark.long
def test_a_request_that_timed_out_is_sent_again(scripted: Start) -> None:
    late = [DRIPPING[kind] for kind in ("status", "informational", "body", "until closed")]
    assert len(late) == MAX_CONNECTS - 1
    server = scripted(DRIPPING["headers"], says(b"oops", 503), *late, says(b"[]"))
    with closing(Client(server.url, Token(TOKEN), timeout=0.3)) as client, ends_soon():
        assert listed(client) == []
    assert len(server.requests) == MAX_CONNECTS + 2


def test_an_action_that_timed_out_has_an_unknown_outcome(scripted: Start) -> None:
    for kind, drip in DRIPPING.items():
        server = scripted(drip)
        refused = pytest.raises(bf.OutcomeUnknown, match=r"0\.2 s")
        with closing(Client(server.url, Token(TOKEN), timeout=0.2)) as client, ends_soon(), refused:
            fetch(client, CANCEL, protocol.read_nothing, advice="Look here.")
        assert len(server.requests) == 1, kind


def test_the_time_limit_applies_to_each_request_separately(scripted: Start) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.2)
        says(b"[]")(handler)

    with closing(Client(scripted(slow).url, Token(TOKEN), timeout=0.6)) as client:
        assert [listed(client) for _ in range(4)] == [[]] * 4


@pytest.mark.long
def test_logs_have_their_own_time_limit(scripted: Start) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(1.3)
        says(b"built", Content_Type="text/plain")(handler)

    server = scripted(slow)
    ci = bf.connect("acme", base_url=server.url, token=TOKEN, timeout="1s", log_timeout="60s")
    assert ci.log(f"{server.url}/log") == "built"
    with pytest.raises(bf.Unreachable, match="within 1 s"):
        ci.pipelines()
    brief = bf.connect("acme", base_url=server.url, token=TOKEN, timeout="60s", log_timeout="1s")
    with pytest.raises(bf.Unreachable, match="within 1 s"):
        brief.log(f"{server.url}/log")


def test_an_invalid_time_limit_is_refused() -> None:
    limits = [{name: wrong} for name in ("timeout", "log_timeout") for wrong in (60, "soon", "0s", "-5s", None)]
    cases = [(limit, "=".join(f"{name}={wrong!r}" for name, wrong in limit.items())) for limit in limits]
    assert wrong_refusals(cases, lambda limit: bf.connect("acme", base_url="http://127.0.0.1:1", **limit)) == {}


# --- on the way to the service ----------------------------------------------------------------------------------------


@contextmanager
def listener(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Host and port where `talk` is held with everybody who connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near = server.accept()[0]
                    threading.Thread(target=talk, args=(near,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def drip_bytes(*first: bytes, piece: bytes = b"\x00") -> Callable[[socket.socket], None]:
    def talk(near: socket.socket) -> None:
        with near, suppress(OSError):
            near.recv(65_536)
            for each in first:
                near.sendall(each)
            for _ in range(DRIPS):
                time.sleep(0.1)
                near.sendall(piece)

    return talk


@contextmanager
def nobody_gets_in(address: str, port: int = 0) -> Iterator[int]:
    """A port at which connections are never made: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((address, port), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_a_slow_tls_handshake_ends_at_the_time_limit() -> None:
    record = b"\x16\x03\x03\x40\x00"  # a handshake record of 16 KiB begins
    with listener(drip_bytes(record)) as where:
        sockets = open_sockets()
        with closing(Client(f"https://{where}", Token(TOKEN), timeout=0.3)) as client, ends_soon():
            with pytest.raises(bf.Unreachable) as caught:
                listed(client)
            assert until(lambda: open_sockets() <= sockets)
        assert not caught.value.sent


@pytest.mark.long
def test_a_slow_proxy_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for piece in (b"H", b"HTTP/1.1 100 Continue\r\n\r\n"):
        with listener(drip_bytes(piece=piece)) as where:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{where}")
            sockets = open_sockets()
            with closing(Client("https://ci.example.com", Token(TOKEN), timeout=0.3)) as client, ends_soon():
                with pytest.raises(bf.Unreachable):
                    listed(client)
                assert until(lambda sockets=sockets: open_sockets() <= sockets)


def resolved(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Make localhost a host that has these addresses."""
    resolve = socket.getaddrinfo

    def answer(host: str, *more: Any, **options: Any) -> list[Any]:
        hosts = addresses if host == "localhost" else (host,)
        return [found for each in hosts for found in resolve(each, *more, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.long
def test_all_addresses_of_a_host_share_the_time_limit_of_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [f"127.0.0.{n}" for n in range(1, 31)]
    with ExitStack() as stack:
        port = stack.enter_context(nobody_gets_in(addresses[0]))
        for address in addresses[1:]:
            stack.enter_context(nobody_gets_in(address, port))
        resolved(monkeypatch, *addresses)
        client = stack.enter_context(closing(Client(f"http://localhost:{port}", Token(TOKEN), timeout=0.5)))
        with ends_soon(), pytest.raises(bf.Unreachable) as caught:
            listed(client)
        assert not caught.value.sent


def test_the_first_address_of_a_host_need_not_answer(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = scripted(says(b"[]"))
    resolved(monkeypatch, "127.0.0.9", "127.0.0.1")
    with closing(Client(f"http://localhost:{server.server.server_port}", Token(TOKEN))) as client:
        assert listed(client) == []


def test_tls_works_within_a_time_limit(tmp_path: Path) -> None:
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate(tmp_path))
    ours.load_verify_locations(tmp_path / "localhost.pem")

    def answer(near: socket.socket) -> None:
        with suppress(OSError), theirs.wrap_socket(near, server_side=True) as secured:
            for _ in range(2):
                secured.recv(65_536)
                secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            secured.recv(65_536)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n[")
            for _ in range(DRIPS):
                time.sleep(0.1)
                secured.sendall(b" ")

    with listener(answer) as where:
        url = f"https://localhost:{where.rpartition(':')[2]}"
        with closing(Client(url, Token(TOKEN), tls=ours, timeout=1.0)) as client, ends_soon():
            assert [listed(client) for _ in range(2)] == [[], []]
            with closing(client.copy()) as copy:
                assert listed(copy) == []  # it trusts the same certificates
            with pytest.raises(bf.OutcomeUnknown, match="within 1 s"):
                fetch(client, CANCEL, protocol.read_nothing)


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate of localhost, which signs itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "localhost.pem"
    path.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_server_that_reads_nothing_ends_at_the_time_limit() -> None:
    def deaf(near: socket.socket) -> None:
        time.sleep(BOUNDED)
        near.close()

    request = protocol.Request(spec.create_pipeline, "/v2/organizations/acme/pipelines", b"x" * 50_000_000, False)
    refused = pytest.raises(bf.OutcomeUnknown, match=r"within 0\.5 s")
    with (
        listener(deaf) as where,
        closing(Client(f"http://{where}", Token(TOKEN), timeout=0.5)) as client,
        ends_soon(),
        refused,
    ):
        fetch(client, request, protocol.read_nothing)


# --- deadlines --------------------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Any, Any], Any]] = {
    "builds": lambda ci, late: ci.builds(deadline=late),
    "pipelines": lambda ci, late: ci.pipelines(deadline=late),
    "record": lambda ci, late: ci.pipeline("web").build(7, deadline=late),
    "log": lambda ci, late: ci.log(f"{ci.base_url}/log", deadline=late),
    "any path": lambda ci, late: ci.get("/organizations/acme/agents", deadline=late),
    "graphql": lambda ci, late: ci.graphql("{ viewer { id } }", deadline=late),
    "set_team": lambda ci, late: ci.set_team("web", UUID, "read_only", deadline=late),
}
ACTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "create_build": lambda ci, late: ci.pipeline("web").create_build(commit="HEAD", branch="main", deadline=late),
    "cancel": lambda ci, late: ci.pipeline("web").cancel(7, deadline=late),
    "delete": lambda ci, late: ci.pipeline("web").delete(deadline=late),
    "mutation": lambda ci, late: ci.graphql("mutation { x { id } }", deadline=late),
}
UUID = "01920000-0000-7000-8000-000000000000"
JOB = f"/v2/organizations/acme/pipelines/web/builds/7/jobs/{UUID}"
SOON = dt.timedelta(seconds=0.2)
USED_UP = says(b'{"message":"slow down"}', 429, RateLimit_Remaining="0", RateLimit_Reset="100")


def connected(server: Scripted) -> Any:
    return bf.connect("acme", base_url=server.url, token=TOKEN)


def test_a_call_with_a_slow_response_ends_at_its_deadline(scripted: Start) -> None:
    ci = connected(scripted(DRIPPING["body"]))
    cases = [(READS[name], r"deadline=0\.2s has passed") for name in READS]
    with ends_soon():
        assert wrong_refusals(cases, lambda call: call(ci, SOON), bf.DeadlineExceeded) == {}


def test_an_action_sent_before_its_deadline_has_an_unknown_outcome(scripted: Start) -> None:
    ci = connected(scripted(DRIPPING["headers"]))
    cases = [(ACTIONS[name], "not complete within") for name in ACTIONS]
    with ends_soon():
        assert wrong_refusals(cases, lambda call: call(ci, SOON), bf.OutcomeUnknown) == {}


WITH_DEADLINE = [(owner, name) for owner, name in METHODS if "deadline" in options_of(getattr(owner, name))]
NEEDED: dict[str, dict[str, Any]] = {
    "cancel_all": {"branch": "main"},
    "create_build": {"commit": "HEAD", "branch": "main"},
    "create_pipeline": {"name": "Web", "repository": "r", "configuration": "steps: []", "cluster_id": UUID},
    "create_team_pipeline": {"pipeline_id": UUID, "access_level": "read_only"},
    "update": {"description": "x"},
    "update_team_pipeline": {"access_level": "read_only"},
}


def called_with_deadline(server: Scripted, folder: Path, owner: type, name: str, deadline: Any) -> Any:
    if name in {"log", "retry_job", "unblock"}:
        ci = connected(server)
        place = ci if owner is Workspace else ci.pipeline("web")
        return getattr(place, name)(f"{server.url}{JOB}/{name.removesuffix('_job')}", deadline=deadline)
    return called(server, folder, owner, name, **NEEDED.get(name, {}), deadline=deadline)


def test_a_deadline_of_each_method_ends_a_wait_for_a_limit_before_it_begins(scripted: Start, tmp_path: Path) -> None:
    wrong = {}
    for owner, name in WITH_DEADLINE:
        server = scripted(USED_UP)  # another one for each, since a used-up limit is remembered
        cases = [(name, "deadline=60s would pass while waiting 100 s")]

        def call(name: str, server: Scripted = server, owner: type = owner) -> object:
            return called_with_deadline(server, tmp_path, owner, name, "60s")

        wrong |= wrong_refusals(cases, call, bf.DeadlineExceeded)
        if len(server.requests) != 1:
            wrong[f"requests of {name}"] = str(server.requests)
    assert wrong == {}


def test_an_invalid_deadline_of_each_method_is_refused_before_anything_is_sent(scripted: Start, tmp_path: Path) -> None:
    server = scripted(says(b"[]"))
    cases = [((*one, wrong), "deadline") for one in WITH_DEADLINE for wrong in ("soon", "0s", 5)]
    assert wrong_refusals(cases, lambda one: called_with_deadline(server, tmp_path, *one)) == {}
    assert server.requests == []
    assert len(WITH_DEADLINE) > 30


def test_a_deadline_ends_an_attempt_to_connect() -> None:
    with nobody_gets_in("127.0.0.1") as port:
        ci = bf.connect("acme", base_url=f"http://127.0.0.1:{port}", token=TOKEN)
        with ends_soon(), pytest.raises(bf.DeadlineExceeded):
            ci.pipelines(deadline=SOON)
        with ends_soon(), pytest.raises(bf.DeadlineExceeded):
            ci.pipeline("web").cancel(7, deadline=SOON)


def test_partial_lists_contain_the_rows_received_before_their_deadline(scripted: Start) -> None:
    rows = b'[{"id":"a","slug":"web"},{"id":"b","slug":"api"}]'
    link = '</v2/organizations/acme/pipelines?page=2>; rel="next"'
    ci = connected(scripted(says(rows, Link=link), DRIPPING["body"]))
    with ends_soon():
        frame = ci.pipelines(deadline=SOON, partial=True)
    assert list(frame["slug"]) == ["web", "api"]
    assert (frame.attrs["complete"], frame.attrs["why"]) == (False, "deadline=0.2s has passed")
    with ends_soon():
        nothing = ci.members(deadline=SOON, partial=True)
    assert (len(nothing), nothing.attrs["complete"]) == (0, False)


def test_a_partial_list_is_marked_when_the_service_fails(scripted: Start) -> None:
    link = '</v2/organizations/acme/pipelines?page=2>; rel="next"'
    ci = connected(scripted(says(b'[{"id":"a","slug":"web"}]', Link=link), says(b'{"message":"no"}', 403)))
    frame = ci.pipelines(partial=True)
    assert (list(frame["slug"]), frame.attrs["complete"], frame.attrs["why"]) == (["web"], False, "403: no")
    with pytest.raises(bf.Forbidden):
        ci.pipelines(partial=True)


def test_calls_within_share_the_earliest_deadline() -> None:
    with within_deadline("1h"):
        with within_deadline("2h"):
            assert 3500 < (RequestBudget().seconds_left or 0) <= 3600
            assert 50 < (RequestBudget(seconds=60).seconds_left or 0) <= 60
        with within_deadline("10s"), within_deadline(None):
            assert 5 < (RequestBudget().seconds_left or 0) <= 10
    assert RequestBudget().seconds_left is None


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command in this process; return its status and what it prints to standard error."""

    def run(*words: str, url: str = "http://127.0.0.1:1") -> tuple[int, str]:
        for name, value in {"URL": url, "TOKEN": TOKEN, "ORG": "acme"}.items():
            monkeypatch.setenv(f"BUILDFRAME_{name}", value)
        try:
            status = cli.main(words)
        except SystemExit as end:
            status = int(str(end.code))
        return status, capsys.readouterr().err

    return run


def test_an_export_and_a_sync_end_at_their_deadlines(
    scripted: Start, tmp_path: Path, run: Callable[..., tuple[int, str]]
) -> None:
    file = tmp_path / "out.parquet"
    words = ("export", str(file), "builds", "--deadline", "1s")
    status, said = run(*words, url=scripted(DRIPPING["body"]).url)
    assert status == 124
    assert said.startswith("buildframe: --deadline=1s has passed")
    assert not file.exists()
    words = ("sync", str(tmp_path / "ci"), "--deadline", "1s")
    status, said = run(*words, url=scripted(DRIPPING["headers"]).url)
    assert status == 124
    assert said.endswith("Nothing was committed; the store is unchanged.\n")


def test_commands_have_a_deadline_option_that_defaults_to_six_hours(run: Callable[..., tuple[int, str]]) -> None:
    for words in (["sync", "ci"], ["report", "ci", "reports"], ["export", "out.csv", "builds"]):
        assert _parser().parse_args(words).deadline == "6h"
        assert _parser().parse_args([*words, "--deadline", "90s"]).deadline == "90s"
        assert _parser().parse_args([*words, "--deadline", "none"]).deadline is None
        status, said = run(*words, "--deadline", "soon")
        assert status == 2
        assert "deadline='soon' is not a valid duration" in said
