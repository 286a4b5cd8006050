"""An HTTP service on loopback that lists given builds, and that can respond differently to chosen requests."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import buildframe as bf
from buildframe.spec import Moment
from buildframe.workspace import Workspace
from tests.conftest import says

T0 = Moment(2026, 10, 1, tzinfo=dt.UTC)
NOW = T0 + dt.timedelta(days=30)
DATE = NOW.strftime("%a, %d %b %Y %H:%M:%S GMT")
PATH = "/v2/organizations/acme/builds"
TOKEN = "bkua_0123456789secret"

Responder = Callable[[BaseHTTPRequestHandler], None]
parsed = cache(Moment.parse)


def after(seconds: float) -> Moment:
    """Return the time this many seconds after T0, to the millisecond."""
    return Moment.of(T0 + dt.timedelta(milliseconds=round(1000 * seconds)))


def build(number: int, seconds: float, jobs: int = 0) -> dict[str, Any]:
    """Return a build created this many seconds after T0."""
    listed = [{"id": f"j{number}-{n}", "type": "script", "state": "passed", "name": f"step {n}"} for n in range(jobs)]
    stamp = after(seconds).text()
    pipeline = {"id": "p", "slug": "web"}
    return {
        "id": f"b{number}", "number": number, "state": "passed", "created_at": stamp, "message": f"Build {number}",
        "pipeline": pipeline, "jobs": listed,
    }  # fmt: skip


def evenly(n: int, every: float = 60, jobs: int = 0) -> list[dict[str, Any]]:
    """Return `n` builds, newest first, `every` seconds apart."""
    return [build(number, number * every, jobs * (number % 3)) for number in range(n, 0, -1)]


class Server(ThreadingHTTPServer):
    """Ignores connection errors, since clients disconnect on purpose."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Listing:
    """Lists `builds` in their order, and records the query of each request in `requests`.

    `override` is called with a request's number, from 1, and its query. It returns another response to send, or None.
    """

    def __init__(
        self,
        builds: Iterable[dict[str, Any]],
        override: Callable[[int, dict[str, str]], Responder | None] = lambda number, query: None,
    ) -> None:
        self.builds = list(builds)
        self.override = override
        self.requests: list[dict[str, str]] = []
        self._lock = threading.Lock()
        listing = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                listing._take(dict(parse_qsl(urlsplit(self.path).query)))(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def connected(self) -> Workspace:
        """Return a workspace connected to this service."""
        return bf.connect("acme", base_url=self.url, token=TOKEN)

    def stop(self) -> None:
        """Stop the service; later connections are refused."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def pages(self) -> int:
        """The number of requests for pages, without those for the service's time or a count."""
        return sum(query["per_page"] != "1" for query in self.requests)

    def _take(self, query: dict[str, str]) -> Responder:
        with self._lock:
            self.requests.append(query)
            number = len(self.requests)
        return self.override(number, query) or self.page_of(query)

    def page_of(self, query: dict[str, str]) -> Responder:
        number, size = int(query.get("page", "1")), int(query["per_page"])
        low, high = (parsed(query[name]) if name in query else None for name in ("created_from", "created_to"))
        times = [parsed(each["created_at"]) for each in self.builds]
        found = [
            each
            for each, time in zip(self.builds, times, strict=True)
            if (low is None or time >= low) and (high is None or time < high)
        ]
        last = max(1, -(-len(found) // size))
        left_out = {name for name in ("jobs", "pipeline") if query.get(f"exclude_{name}") == "true"}
        rows = [without(each, left_out) for each in found[(number - 1) * size : number * size]]
        links = {"next": number + 1, "last": last} if number < last else {}
        places = {rel: f"{self.url}{PATH}?{urlencode(query | {'page': n})}" for rel, n in links.items()}
        header = ", ".join(f'<{place}>; rel="{rel}"' for rel, place in places.items())
        return says(json.dumps(rows).encode(), date=DATE, Link=header)


def without(record: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return the record without these keys."""
    return {key: value for key, value in record.items() if key not in names}


@contextmanager
def listing(
    builds: Iterable[dict[str, Any]],
    override: Callable[[int, dict[str, str]], Responder | None] = lambda number, query: None,
) -> Iterator[Listing]:
    """Serve these builds until the block ends."""
    served = Listing(builds, override)
    try:
        yield served
    finally:
        served.stop()
