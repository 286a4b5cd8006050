"""The client reads small invented responses in the shapes that the service documents.

Each file in `responses` says in our words which statement of the public documentation it follows, and which values the
columns must have (`expected`), and functions of `metrics` must return (`expected_of`). These values were derived from
the statement, not from the code.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd

import buildframe as bf
from buildframe import metrics

CASES = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "responses").glob("*.json"))
}


@contextmanager
def service(builds: list[dict[str, Any]]) -> Iterator[str]:
    """Serve a list of builds on loopback, without a Link header, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            before = query.get("created_to", ["9999"])[0]
            number, size = (int(query.get(name, ["1"])[0]) for name in ("page", "per_page"))
            found = [build for build in builds if build["created_at"] < before]
            body = json.dumps(found[(number - 1) * size : number * size]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def plain(values: pd.Series[Any]) -> list[Any]:
    """Return the values of a column as JSON has them."""
    return [
        None if pd.isna(value) else value.isoformat() if isinstance(value, pd.Timestamp) else value for value in values
    ]


def test_documented_shapes_are_read() -> None:
    assert all(case["follows"] and (case.get("expected") or case.get("expected_of")) for case in CASES.values())
    expected = {name: (case.get("expected", {}), case.get("expected_of", {})) for name, case in CASES.items()}
    assert {name: read(case) for name, case in CASES.items()} == expected


def read(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fetch the builds of a case, and return the columns and the results of functions that it names."""
    with service(case["body"]) as url, bf.connect("acme", base_url=url, token="a-test-token" * 20) as ci:
        builds, jobs = ci.history(include_retried_jobs=True, progress=False)
    assert builds.attrs["complete"]
    frames = {"builds": builds, "jobs": jobs}
    columns = {
        table: {column: plain(frames[table][column]) for column in names}
        for table, names in case.get("expected", {}).items()
    }
    computed = {
        table: {name: plain(getattr(metrics, name)(frames[table])) for name in functions}
        for table, functions in case.get("expected_of", {}).items()
    }
    return columns, computed
