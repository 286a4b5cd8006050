"""Shared fixtures: a sandbox with a small world, and a server with scripted responses."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from filelock import FileLock
from hypothesis import settings

from buildframe.http import protocol
from buildframe.http.response import Response
from buildframe.workspace import Workspace
from tests import worlds, xdist_scopes

settings.register_profile("untimed", settings.default, deadline=None)  # a machine may have much else to do
settings.load_profile("untimed")
sys.dont_write_bytecode = False  # workers and child processes compile each module once, not each time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("SSL_CERT_FILE", None)  # each client would take 12 ms to load certificates that no test needs
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
worlds.share_worlds()
matplotlib.use("Agg")  # not by the environment, which kernels would inherit
for name in ("BUILDFRAME_ORG", "BUILDFRAME_URL", "BUILDFRAME_TOKEN", "BUILDFRAME_GRAPHQL_URL"):
    os.environ.pop(name, None)


SHARED = ("spark", "jupyter")
LONGEST = ("test_architecture.py", "test_site.py", "test_contributing.py", "test_docs.py", "test_schemathesis.py")


def read_documents(request: protocol.Request, response: Response) -> list[dict[str, Any]]:
    """Return the rows of a page as dicts with every key that was sent."""
    return protocol.read_as(request, response, list[dict[str, Any]])


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # by the number of tests, files of few but long ones would come last


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, which would visit thousands of tests again and again.

    As many workers collect at a time as there are processors: those that wait find all modules compiled.
    """
    gc.disable()
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % (os.cpu_count() or 1)
    try:
        with FileLock(Path(os.environ[worlds.FOLDER], f"collection-{number}.lock")):
            return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)  # Python's own took 6 to 30 % of a test file's CPU time
        gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> xdist_scopes.Scheduling:
    return xdist_scopes.Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of Spark as long. Run the longest first: no worker is left with one."""
    for item in items:
        if xdist_scopes.scope_of(item.nodeid) == "spark":
            item.add_marker("long")
    items.sort(key=_position)


def _position(item: pytest.Item) -> int:
    scope, name = xdist_scopes.scope_of(item.nodeid), item.path.name
    if scope in SHARED:
        return SHARED.index(scope)
    return len(SHARED) + (LONGEST.index(name) if name in LONGEST else len(LONGEST))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing if a client is gone: another test may be checking what is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Scripted:
    """A server on loopback that sends the scripted responses one after the other, and repeats the last one.

    `requests`, `methods`, `headers` and `bodies` hold what was sent to it, request by request.
    """

    def __init__(self, *responses: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.requests: list[str] = []
        self.methods: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.responses = list(responses)
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                script.requests.append(self.path)
                script.methods.append(self.command)
                script.headers.append(dict(self.headers.items()))
                script.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                script._next()(self)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def _next(self) -> Callable[[BaseHTTPRequestHandler], None]:
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def says(
    body: bytes,
    status: int = 200,
    *,
    date: str | None = "Sun, 01 Nov 2026 12:00:00 GMT",
    cut: int = 0,
    Link: str | None = "",
    **headers: str,
) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a scripted response without the last `cut` bytes. `_` in names of headers stands for `-`.

    A list has an empty `Link`, like a list of one page. None drops the header, as a proxy may.
    """
    if body.startswith(b"[") and Link is not None:
        headers["Link"] = Link

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(status)
        if date is not None:
            handler.send_header("Date", date)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) - cut])
        if cut:
            hang_up(handler)

    return respond


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without the rest of the response."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Start servers with scripted responses, and stop them after the test."""
    started: list[Scripted] = []

    def start(*responses: Callable[[BaseHTTPRequestHandler], None]) -> Scripted:
        started.append(Scripted(*responses))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def ci() -> Iterator[Workspace]:
    """A workspace on a sandbox with a small world, for tests that only read."""
    with worlds.sandbox(builds=400, days=10) as workspace:
        yield workspace
