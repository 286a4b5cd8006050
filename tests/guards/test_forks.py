"""Parent and child after a fork: each has connections of its own, and no lock of the parent blocks the child."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import signal
import socket
import ssl
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

import buildframe as bf
from buildframe.errors import StoreFailed
from buildframe.fetching.progress import ProgressBar, bar_type
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client
from buildframe.http.rate_limit import RateLimitState
from buildframe.http.response import ReportedLimit
from buildframe.http.sockets import Sockets
from buildframe.http.token import Token
from buildframe.sandbox_server.http.server import HttpServer, bind
from buildframe.workspace import Workspace
from tests.conftest import Scripted

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
TOKEN = "bkua_0123456789secret"
LONG = 60
ROUNDS = 40
DATE = "Sun, 01 Nov 2026 12:00:00 GMT"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


def slug_of(handler: BaseHTTPRequestHandler) -> None:
    """Answers with the pipeline that was requested, in two pieces, so that readers of one connection would mix them."""
    slug = handler.path.rpartition("/")[2]
    body = json.dumps({"slug": slug, "name": f"{slug} " * 2_000}).encode()
    handler.send_response_only(200)
    handler.send_header("Date", DATE)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:100])
    time.sleep(0.002)
    handler.wfile.write(body[100:])


def one_build(handler: BaseHTTPRequestHandler) -> None:
    slug = handler.path.split("/pipelines/")[1].split("/")[0]
    body = json.dumps([{"id": slug, "number": 1, "created_at": "2026-10-30T10:00:00Z", "branch": slug}]).encode()
    handler.send_response_only(200)
    handler.send_header("Date", DATE)
    handler.send_header("Link", "")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def connected(server: Scripted) -> Workspace:
    return bf.connect("acme", base_url=server.url, token=TOKEN)


def in_child(call: Callable[[], object]) -> Callable[[], None]:
    """Fork, and call it in the child; the result waits for its end, and fails where the call failed or hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(LONG)  # ends a child that hangs
            call()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def joined() -> None:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return joined


def ask_for(ws: Workspace, slug: str, times: int = ROUNDS) -> None:
    for _ in range(times):
        assert ws.pipeline(slug).get().slug == slug


def list_for(ws: Workspace, slug: str) -> None:
    for _ in range(10):
        assert list(ws.pipeline(slug).builds(progress=False)["id"]) == [slug]


def test_parent_and_child_get_what_each_requested(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(slug_of))
    ask_for(ws, "web", 2)  # over a connection that stays open
    children = [in_child(lambda name=name: ask_for(ws, name, 15)) for name in ("api", "docs")]
    ask_for(ws, "web", 15)
    for joined in children:
        joined()


def test_listings_too(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(one_build))
    list_for(ws, "web")
    joined = in_child(lambda: list_for(ws, "api"))
    list_for(ws, "web")
    joined()


@pytest.mark.long
def test_by_multiprocessing(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(slug_of))
    ask_for(ws, "web", 2)
    processes = [multiprocessing.get_context("fork").Process(target=ask_for, args=(ws, name)) for name in "abc"]
    for process in processes:
        process.start()
    ask_for(ws, "web")
    for process in processes:
        process.join(LONG)
        assert process.exitcode == 0


@pytest.mark.long
def test_while_other_threads_are_in_a_request(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(slug_of))
    stop, wrong = threading.Event(), list[str]()

    def ask(slug: str) -> None:
        while not stop.is_set():
            got = ws.pipeline(slug).get().slug
            wrong.extend([f"requested {slug}, got {got}"] if got != slug else [])

    threads = [threading.Thread(target=ask, args=(f"thread-{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            in_child(lambda: ask_for(ws, "child", 3))()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_the_parents_connection_stays_open_and_unbroken(scripted: Callable[..., Scripted]) -> None:
    ports: list[int] = []

    def note(handler: BaseHTTPRequestHandler) -> None:
        ports.append(handler.client_address[1])
        slug_of(handler)

    ws = connected(scripted(note))
    ask_for(ws, "web", 1)
    in_child(lambda: (ask_for(ws, "api", 1), ws.close()))()
    ask_for(ws, "web", 2)
    of_parent, of_child, *later = ports
    assert of_child != of_parent
    assert later == [of_parent] * 2


def test_a_child_of_a_child(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(slug_of))
    ask_for(ws, "web", 1)

    def parent() -> None:
        joined = in_child(lambda: ask_for(ws, "inner", 5))
        ask_for(ws, "outer", 5)
        joined()

    in_child(parent)()


@pytest.mark.long
def test_locks_that_another_thread_held_are_free_in_the_child(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(one_build))
    list_for(ws, "web")
    client, held, go = ws._client, threading.Event(), threading.Event()

    def hold() -> None:
        ProgressBar("builds", False).end()
        pool = client._http._transport._pool  # type: ignore[attr-defined]
        with (
            client._lock,
            client._sockets._lock,
            client.rate_limiter._changed,
            bar_type().get_lock(),
            pool._optional_thread_lock,
        ):
            held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        joined = in_child(lambda: (list_for(ws, "api"), connected_again(ws), ws.close()))
        joined()
    finally:
        go.set()
        thread.join()


def connected_again(ws: Workspace) -> None:
    list_for(bf.connect("acme", base_url=ws.base_url, token=TOKEN), "again")


def test_a_closed_workspace_stays_closed(scripted: Callable[..., Scripted]) -> None:
    ws = connected(scripted(slug_of))
    ask_for(ws, "web", 1)
    ws.close()

    def ask() -> None:
        with pytest.raises(bf.BadInput, match="closed"):
            ask_for(ws, "web", 1)

    in_child(ask)()


def test_tls_says_no_goodbye_in_the_child() -> None:
    """A close_notify would end the parent's connection: sockets are closed below TLS."""
    sent: list[str] = []

    class Line(ssl.SSLSocket):
        def unwrap(self) -> Any:
            sent.append("unwrap")

        def shutdown(self, how: int) -> None:
            sent.append("shutdown")

    sockets, line = Sockets(), Line.__new__(Line)
    super(ssl.SSLSocket, line).__init__()
    line._sslobj = None
    sockets._open.add(line)
    sockets.reset_after_fork()
    assert line.fileno() == -1
    assert sent == []


def test_the_limits_are_kept_and_the_first_request_goes_alone() -> None:
    state = RateLimitState()
    state.send(1, 0.0)
    state.learn(1, 0.5, [ReportedLimit("ratelimit", 10, 30.0)])
    state.send(2, 1.0)
    state.reset_after_fork()
    assert state.seconds_until_free(2.0) == 0.0
    state.send(3, 2.0)
    assert state.seconds_until_free(2.0) is None
    state.learn(3, 2.1, [ReportedLimit("ratelimit", 0, 28.0)])
    assert state.seconds_until_free(2.2) == pytest.approx(27.9, abs=1.5)
    state.reset_after_fork()
    assert state.seconds_until_free(2.2) > 20  # a used-up limit is used up for the child, too


def test_a_sandbox_ends_with_the_process_that_started_it() -> None:
    with bf.sandbox(builds=5, days=1) as ws:
        slug = ws.pipelines()["slug"][0]

        def use() -> None:
            assert ws.pipeline(slug).get().slug == slug
            ws.close()

        in_child(use)()
        assert ws.pipeline(slug).get().slug == slug


def test_a_stopped_server_is_unreachable_while_a_child_lives() -> None:
    listener = bind("127.0.0.1", 0)
    server = HttpServer(PlainTextResponse("here"), listener)
    server.start()
    reading, writing = os.pipe()

    def wait() -> None:
        assert listener.fileno() == -1
        os.read(reading, 1)

    joined = in_child(wait)
    copied = os.dup(listener.fileno())  # as in a child that the system has not run yet
    address = listener.getsockname()
    server.stop()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
    finally:
        os.write(writing, b"!")
        joined()
        for descriptor in (reading, writing, copied):
            os.close(descriptor)


@pytest.mark.long
def test_a_store_that_was_used_says_that_it_cannot_go_on_in_a_child(tmp_path: Path) -> None:
    store = bf.Store(tmp_path / "ci")
    with bf.sandbox(builds=20, days=2) as ws:
        store.sync(ws)

    def read() -> None:
        with pytest.raises(StoreFailed, match='"spawn" or "forkserver"'):
            store.builds()

    in_child(read)()
    assert len(store.builds())


def test_what_is_pickled_for_another_process_and_what_is_not(ci: Workspace, tmp_path: Path) -> None:
    for live in (ci, ci.pipeline("web"), ci._client):
        with pytest.raises(TypeError, match=r"cannot be pickled: call connect\(\) in the process that needs it"):
            pickle.dumps(live)
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.deepcopy(live)
    store = bf.Store(tmp_path / "ci")
    assert repr(pickle.loads(pickle.dumps(store))) == repr(store)
    record = ci.pipeline("web").get()
    assert pickle.loads(pickle.dumps(record)) == record


def test_a_client_of_its_own_starts_over_too(scripted: Callable[..., Scripted]) -> None:
    with closing(Client(scripted(slug_of).url, Token(TOKEN))) as client:
        ws = Workspace(client, "acme")
        ask_for(ws, "web", 1)
        in_child(lambda: ask_for(ws, "api", 1))()
        client.rate_limiter.acquire(RequestBudget())
        client.rate_limiter.release(None)
