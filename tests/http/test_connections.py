"""Copied clients have their own connections, which another thread can cut off at once."""

from __future__ import annotations

import copy
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import buildframe as bf
from buildframe import spec
from buildframe.http import protocol
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.client import Client
from buildframe.http.retry import fetch
from buildframe.http.sockets import Sockets
from buildframe.http.token import Token
from tests.conftest import Scripted, read_documents, says

Start = Callable[..., Scripted]
TOKEN = Token("bkua_0123456789secret")
PIPELINES = protocol.request_for(spec.list_pipelines, "acme")
BOUNDED = 7.0  # seconds; less than the client's own time-outs, and far more than a cut takes


def listed(client: Client, budget: RequestBudget | None = None) -> list[dict[str, Any]]:
    return fetch(client, PIPELINES, read_documents, budget)


class Silent:
    """An answer that says something, or nothing, and then stays silent until the test is over."""

    def __init__(self, said: bytes = b"") -> None:
        self.is_requested, self.over = threading.Event(), threading.Event()
        self._said = said

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(self._said)
        self.is_requested.set()
        self.over.wait(60)
        handler.close_connection = True


@contextmanager
def silent_listener() -> Iterator[tuple[str, threading.Event]]:
    """An https address where a connection is made and TLS is never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        said_hello = threading.Event()
        kept = []

        def accept() -> None:
            kept.append(server.accept()[0])
            kept[0].recv(1)
            said_hello.set()

        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}", said_hello
        for each in kept:
            each.close()


def cut_off(client: Client, budget: RequestBudget, future: Future[Any]) -> BaseException | None:
    budget.cancel()
    client.abort()
    return future.exception(timeout=BOUNDED)


def test_a_request_that_waits_for_its_response_is_cut_off(scripted: Start) -> None:
    for said in (b"", b"HTTP/1.1 200 OK\r\nDate: x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1,"):
        silent, budget = Silent(said), RequestBudget()
        server = scripted(silent)
        client = Client(server.url, TOKEN)
        with closing(client.copy()) as copy, ThreadPoolExecutor(1) as pool:
            future = pool.submit(listed, copy, budget)
            assert silent.is_requested.wait(BOUNDED)
            time.sleep(0.05)
            assert isinstance(cut_off(copy, budget, future), Canceled), said
        silent.over.set()
        assert len(server.requests) == budget.requests == 1
        client.close()


def test_a_request_that_waits_for_tls_is_cut_off() -> None:
    budget, sockets = RequestBudget(), open_sockets()
    with silent_listener() as (url, said_hello), closing(Client(url, TOKEN)) as client:
        with closing(client.copy()) as copy, ThreadPoolExecutor(1) as pool:
            future = pool.submit(listed, copy, budget)
            assert said_hello.wait(BOUNDED)
            time.sleep(0.05)
            assert isinstance(cut_off(copy, budget, future), Canceled)
        assert until(lambda: open_sockets() <= sockets + 2)  # those of the listener


def test_an_action_that_is_cut_off_has_an_unknown_outcome(scripted: Start) -> None:
    silent = Silent()
    request = protocol.request_for(spec.cancel_build, "acme", "web", 7)
    with closing(Client(scripted(silent).url, TOKEN)) as client, ThreadPoolExecutor(1) as pool:
        future = pool.submit(fetch, client, request, protocol.read_nothing)
        assert silent.is_requested.wait(BOUNDED)
        assert isinstance(cut_off(client, RequestBudget(), future), bf.OutcomeUnknown)
    silent.over.set()


def test_a_call_that_is_cut_off_sends_no_more_requests_and_delays_no_other_call(scripted: Start) -> None:
    server = scripted(says(b"[]"))
    with closing(Client(server.url, TOKEN)) as client, closing(client.copy()) as copy:
        listed(copy)
        copy.abort()
        for _ in range(2):
            with pytest.raises(Canceled, match="it was canceled"):
                listed(copy)
        assert listed(client) == []
        with closing(client.copy()) as another:
            assert listed(another) == []
    assert len(server.requests) == 3


def test_a_connection_that_is_made_too_late_is_cut_off_too() -> None:
    sockets = Sockets()
    sockets.abort()
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = sockets.connect_tcp(*server.getsockname())
        with server.accept()[0] as far:
            assert stream.read(1) == far.recv(1) == b""
        stream.close()


def open_sockets() -> int:
    kinds = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(kind.startswith("socket:") for kind in kinds)


def until(what: Callable[[], bool]) -> bool:
    ended = time.monotonic() + BOUNDED
    while not what() and time.monotonic() < ended:
        time.sleep(0.01)
    return what()


def test_no_thread_and_no_socket_remains(scripted: Start) -> None:
    silent = Silent()
    server = scripted(says(b"[]"), silent)
    client = Client(server.url, TOKEN)
    listed(client)
    threads, sockets = set(threading.enumerate()), open_sockets()
    budget = RequestBudget()
    with closing(client.copy()) as copy, ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(listed, copy, budget) for _ in range(4)]
        assert until(lambda: len(server.requests) == 5)
        assert all(isinstance(cut_off(copy, budget, future), Canceled) for future in futures)
    silent.over.set()
    assert until(lambda: open_sockets() <= sockets)
    assert until(lambda: set(threading.enumerate()) <= threads)
    client.close()


def test_a_copied_client_has_its_own_connections_and_the_same_rate_limiter(scripted: Start) -> None:
    ports: list[int] = []

    def note(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        says(b"[]")(handler)

    with closing(Client(scripted(note).url, TOKEN)) as client, closing(client.copy()) as copy:
        for each in (client, client, copy, copy):
            listed(each)
        assert copy.rate_limiter is client.rate_limiter
    assert ports[0] == ports[1] != ports[2] == ports[3]
    with pytest.raises(bf.BadInput, match="closed"):
        client.copy()


# --- one response for each request

HEAD = b"HTTP/1.1 200 OK\r\nDate: Sun, 01 Nov 2026 12:00:00 GMT\r\nLink: \r\n"
UNREQUESTED = HEAD + b'Content-Length: 15\r\n\r\n[{"id":"other"}]'
FRAMED = {
    "length": HEAD + b'Content-Length: 12\r\n\r\n[{"id":"a1"}]'.replace(b"12", b"13"),
    "chunks": HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n[{"id\r\n8\r\n":"a1"}]\r\n0\r\n\r\n',
    "informational": b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b'Content-Length: 13\r\n\r\n[{"id":"a1"}]',
    "empty lines": HEAD + b"Content-Length: 6\r\n\r\n[]\r\n\r\n",
    "trailers": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\nX-Sum: 1\r\n\r\n",
    "line feeds": HEAD.replace(b"\r", b"") + b"Content-Length: 2\n\n[]",
}
UNREQUESTED_CHUNKS = HEAD + b'Transfer-Encoding: chunked\r\n\r\nf\r\n[{"id":"other"}]\r\n0\r\n\r\n'


EXCESSES = {
    "none": b"",
    "whole": UNREQUESTED,
    "chunks": UNREQUESTED_CHUNKS,
    "begun": UNREQUESTED[:40],
    "byte": b"\x00",
}


def test_a_response_without_a_request_is_discarded_with_its_connection(scripted: Start) -> None:
    server, ports = scripted(lambda _: None), list[int]()
    for framing, excess in itertools.product(FRAMED, EXCESSES):
        ports.clear()

        def respond(handler: BaseHTTPRequestHandler, framing: str = framing, excess: str = excess) -> None:
            ports.append(handler.client_address[1])
            handler.wfile.write(FRAMED[framing] + (EXCESSES[excess] if len(ports) == 1 else b""))

        server.responses = [respond]
        with closing(Client(server.url, TOKEN)) as client:
            bodies = [client.send(PIPELINES, RequestBudget()).body for _ in range(3)]
        assert bodies == [bodies[0]] * 3, (framing, excess)
        assert b"other" not in bodies[0], (framing, excess)
        assert (ports[0] == ports[1]) is (excess == "none"), (framing, excess)  # one in step is used again
        assert ports[1] == ports[2], (framing, excess)


@contextmanager
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_no_other_thread_and_no_next_request_gets_a_response_without_a_request(
    scripted: Start,
) -> None:
    server = scripted(lambda handler: handler.wfile.write(FRAMED["length"] + UNREQUESTED))
    with closing(Client(server.url, TOKEN)) as client, ThreadPoolExecutor(8) as pool, threads_that_switch_often():
        calls = [pool.submit(client.send, PIPELINES, RequestBudget()) for _ in range(100)]
        assert {call.result().body for call in calls} == {b'[{"id":"a1"}]'}
        broken = b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
        server.responses[:0] = [lambda handler: handler.wfile.write(HEAD + broken + UNREQUESTED)]
        with pytest.raises(bf.Malformed, match="gzip"):
            client.send(PIPELINES, RequestBudget())
        assert client.send(PIPELINES, RequestBudget()).body == b'[{"id":"a1"}]'


def test_a_shallow_copy_of_a_workspace_shares_its_connections_and_a_deep_one_is_refused(
    scripted: Start,
) -> None:
    workspace = bf.connect("acme", base_url=scripted(says(b'{"slug":"a"}')).url, token="bkua_0123456789secret")
    assert copy.copy(workspace).get("/organizations/acme/pipelines/a") == {"slug": "a"}
    assert copy.copy(workspace.pipeline("web")).slug == "web"
    with pytest.raises(TypeError, match=r"cannot be copied: call connect\(\) for"):
        copy.deepcopy(workspace)


def test_only_a_token_that_is_no_ordinary_text_is_sent_and_removed_from_messages(scripted: Start) -> None:
    server = scripted(says(b'{"message":"no 12345678, see a"}', 422))
    for short in ("a", "1234567"):
        with pytest.raises(bf.BadInput, match=r"fewer than 8 characters.*Nothing was sent") as refused:
            bf.connect("acme", base_url=server.url, token=short)
        assert "1234567" not in str(refused.value)
    assert server.requests == []
    with pytest.raises(bf.Invalid, match="no <token>, see a"):
        bf.connect("acme", base_url=server.url, token="12345678").pipelines()


def test_each_redirect_says_what_it_is(scripted: Start) -> None:
    messages = [
        (304, {}, "304: not modified, although the request had no condition. A cache in between"),
        (302, {}, "302: redirected without a target"),
        (301, {"Location": "https://other.example.com/x"}, "301: redirected to 'https://other.example.com/x'"),
        (308, {"Location": "/v3"}, "308: redirected to '/v3', which is not followed"),
        (307, {"Location": "https://a.example/\x1b[31m"}, r"307: redirected to 'https://a.example/\x1b[31m'"),
    ]
    server = scripted(lambda _: None)
    workspace = bf.connect("acme", base_url=server.url, token="bkua_0123456789secret")
    for status, headers, message in messages:
        server.responses = [says(b"" if status == 304 else b'{"message":"moved"}', status, **headers)]
        for call in (workspace.pipelines, workspace.builds):
            with pytest.raises(bf.ServiceError) as refused:
                call()
            assert message in str(refused.value)
    assert len(server.requests) == 2 * len(messages)
