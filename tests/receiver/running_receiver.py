"""A receiver on a local port, and an unreliable proxy between it and the service."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

import buildframe as bf
from buildframe import receiver as receiving
from buildframe.receiver.server import server as uvicorn_server
from buildframe.sandbox_server import Sandbox
from buildframe.workspace import Workspace
from tests.sandbox_server.webhook_receiver import settled
from tests.store import store_comparison

SECRET = "s3cret-of-the-hook"


class Served:
    """A receiver at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rstrip("/").rpartition(":")[2])

    def status(self) -> dict[str, Any]:
        """Return the counts of the receiver."""
        found: dict[str, Any] = httpx.get(f"{self.url}health").json()
        return found

    def until(self, **wanted: int) -> dict[str, Any]:
        """Wait until the status contains these counts, and return it."""
        deadline = time.monotonic() + 30
        while not wanted.items() <= (status := self.status()).items():
            assert time.monotonic() < deadline, f"{status} never became {wanted}"
            time.sleep(0.02)
        return status


@contextmanager
def serving(application: Starlette, send_buffer: int | None = None) -> Iterator[Served]:
    """Serve an application; at the end it writes waiting deliveries."""
    server = uvicorn_server(application)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if send_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def receiver(store: Path, every: float = 0.1) -> Iterator[Served]:
    """Serve a receiver that writes to a store."""
    with serving(receiving.application(bf.Store(store), [SECRET], every=every)) as served:
        yield served


class Line:
    """A proxy that loses, repeats and delays deliveries; `did` counts these."""

    def __init__(self, to: str, chance: random.Random, bad: float = 0.3) -> None:
        self.did: Counter[str] = Counter()
        self._to, self._chance, self._bad = to, chance, bad
        self._http = httpx.Client(timeout=30)
        self._held: list[tuple[dict[str, str], bytes]] = []
        self._lock = threading.Lock()
        line = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                line.forward({name: value for name, value in self.headers.items() if name.startswith("X-")}, body)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def forward(self, headers: dict[str, str], body: bytes) -> None:
        """Send it once, twice, later or not at all."""
        with self._lock:
            fate = self._chance.random() / self._bad
            what = "lost" if fate < 0.4 else "late" if fate < 0.7 else "twice" if fate < 1 else "passed"
            self.did[what] += 1
            if what == "late":
                self._held.append((headers, body))
            for _ in range({"passed": 1, "twice": 2}.get(what, 0)):
                self._send(headers, body)
            if len(self._held) > 20 or (self._held and self._chance.random() < 0.1):
                self._send_held()

    def _send(self, headers: dict[str, str], body: bytes) -> None:
        assert self._http.post(self._to, content=body, headers=headers).status_code == 204

    def _send_held(self) -> None:
        self._chance.shuffle(self._held)
        while self._held:
            self._send(*self._held.pop())

    def stop(self) -> None:
        """Send the delayed deliveries, then stop."""
        with self._lock:
            self._send_held()
        self._server.shutdown()
        self._server.server_close()
        self._http.close()


@contextmanager
def line(sandbox: Sandbox, to: str, chance: random.Random, bad: float = 0.3) -> Iterator[Line]:
    """Send signed deliveries of a sandbox through the proxy; at the end all have arrived that are not lost."""
    found = Line(to, chance, bad)
    hook = sandbox.webhook(found.url, token=SECRET, signed=True)
    try:
        yield found
        settled(sandbox)
    finally:
        sandbox.remove_webhook(hook)
        found.stop()


def equal(ci: Workspace, store: bf.Store) -> None:
    """Assert that the store equals the service, field by field."""
    served = ci.history(progress=False)
    builds, jobs = store.builds(columns=None), store.jobs()
    store_comparison.same_as_served(served, (builds, jobs), store)
    assert builds["id"].is_unique
    assert jobs["id"].is_unique
    at = jobs["build_id"].map(builds.set_index("id")["fetched_at"])
    assert at.notna().all()
    is_there = jobs["build_id"].isin(served.builds["id"])
    assert (jobs["fetched_at"] == at)[is_there].all(), "jobs that no sync has read"
