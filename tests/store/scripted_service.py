"""A service of a few builds, whose responses and failures a test sets one by one."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from buildframe.spec import Moment
from tests.conftest import Scripted, says

NOW = Moment(2026, 11, 1, 12, tzinfo=dt.UTC)
BUILDS = "/v2/organizations/acme/builds"
PIPELINES = "/v2/organizations/acme/pipelines"

Body = dict[str, Any]


class Service:
    """`builds` and `pipelines` (slug by id) are its content, `now` its time, `requests` its paths and queries.

    Lists have `size` builds on a page. `counted_too_many` is by how much it miscounts; `failing` answers some
    requests in its place, and `after` is called with each path once it was answered. `sent_instead` are fields of
    responses by the id of their build. `date` makes the Date header of a path's response (None: without one) of the
    service's time. It is a sandbox, unless `is_simulated` is False.
    """

    def __init__(self) -> None:
        self.builds: list[Body] = []
        self.sent_instead: dict[str, Body] = {}
        self.pipelines = {"p-web": "web"}
        self.now = NOW
        self.size = 100
        self.counted_too_many = 0
        self.failing: Callable[[str, dict[str, list[str]]], int | None] = lambda path, query: None
        self.after: Callable[[str], None] = lambda path: None
        self.date: Callable[[str], str | None] = lambda path: format_datetime(self.now, usegmt=True)
        self.is_simulated = True
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._server = Scripted(self._answer)
        self.url = self._server.url

    def stop(self) -> None:
        self._server.stop()

    def add(self, number: int, state: str, days: float = 0, *, jobs: str = "passed", **more: Any) -> Body:
        """A build that is so many days old, with one job."""
        created = self.now - dt.timedelta(days=days, minutes=10)
        build = {"id": f"b{number}", "number": number, "state": state, "blocked": False, "pipeline_id": "p-web",
                 "created_at": created.text(), "finished_at": None, **more}  # fmt: skip
        job = {"type": "script", "agent_query_rules": [], "agent": {"id": "a", "name": "ant"}}
        build["jobs"] = [job | {"id": f"j{number}", "state": jobs}]
        self.builds.append(build)
        return build

    def later(self, **by: float) -> None:
        """Let time go on."""
        self.now = Moment.of(self.now + dt.timedelta(**by))

    def lists(self) -> list[dict[str, str]]:
        """Return the filters of build lists that were requested since the last call."""
        queries = [query for path, query in self._taken() if path.endswith("/builds")]
        plain = ("created_from", "created_to", "finished_from", "state[]")
        return [{name: query[name] for name in plain if name in query} for query in queries]

    def paths(self) -> list[str]:
        """Return the paths requested since the last call, in order."""
        return [path for path, _ in self._taken()]

    def _taken(self) -> list[tuple[str, dict[str, str]]]:
        requests, self.requests = self.requests, []
        return requests

    # --- answering

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, query = urlsplit(handler.path).path, parse_qs(urlsplit(handler.path).query)
        self.requests.append((path, {name: ",".join(values) for name, values in query.items()}))
        status = self.failing(path, query)
        body, links = ({"message": "No."}, "") if status else self.body(path, query)
        headers = {"Link": links} | ({"X_Simulated_Time": "true"} if self.is_simulated else {})
        answer = status or (404 if body is None else 200)
        says(json.dumps(body).encode(), answer, date=self.date(path), **headers)(handler)
        self.after(path)

    def body(self, path: str, query: dict[str, list[str]]) -> tuple[Any, str]:
        slugs = {slug: id for id, slug in self.pipelines.items()}
        parts = path.removeprefix(PIPELINES).strip("/").split("/")
        if path == PIPELINES:
            return [self._pipeline(slug) for slug in slugs], ""
        if path == BUILDS:
            return self._page([b for b in self.builds if b["pipeline_id"] in self.pipelines], query)
        own = [build for build in self.builds if build["pipeline_id"] == slugs.get(parts[0], "?")]
        if parts[1:] == ["builds"]:
            return self._page(own, query)
        if not parts[1:]:
            return (self._pipeline(parts[0]) if parts[0] in slugs else None), ""
        found = [build for build in own if build["number"] == int(parts[2])]
        return (self.whole(found[0], alone=True) if found else None), ""

    def _page(self, builds: list[Body], query: dict[str, list[str]]) -> tuple[list[Body], str]:
        found = sorted(filter(lambda build: _matches(build, query), builds), key=lambda b: b["created_at"])[::-1]
        size, number = min(self.size, int(query["per_page"][0])), int(query.get("page", ["1"])[0])
        pages = -(-(len(found) + self.counted_too_many) // size)
        here = f"{self.url}{BUILDS}?per_page={size}&page="
        links = f'<{here}{number + 1}>; rel="next", <{here}{pages}>; rel="last"' if number < pages else ""
        whole = [self.whole(build) for build in found[(number - 1) * size : number * size]]
        return whole, links if len(found) > size or query["per_page"] == ["1"] else ""

    def _pipeline(self, slug: str) -> Body:
        id = next(id for id, own in self.pipelines.items() if own == slug)
        return {"id": id, "slug": slug, "url": f"{self.url}{PIPELINES}/{slug}", "created_at": "2025-01-01T00:00:00Z"}

    def whole(self, build: Body, alone: bool = False) -> Body:
        slug = self.pipelines[build["pipeline_id"]]
        extra = {"hostname": "ant.example.com", "meta_data": ["queue=macos"]} if alone else {}
        jobs = [job | {"agent": job["agent"] | extra} for job in build["jobs"]]
        url = f"{self.url}{PIPELINES}/{slug}/builds/{build['number']}"
        whole = build | {"jobs": jobs, "url": url, "pipeline": {"id": build["pipeline_id"], "slug": slug}}
        return whole | self.sent_instead.get(build["id"], {})


def _matches(build: Body, query: dict[str, list[str]]) -> bool:
    created, finished = Moment.parse(build["created_at"]), build["finished_at"]
    tests = {
        "state[]": lambda wanted: build["state"] in wanted,
        "created_from": lambda at: created >= Moment.parse(at[0]),
        "created_to": lambda at: created < Moment.parse(at[0]),
        "finished_from": lambda at: finished is not None and Moment.parse(finished) >= Moment.parse(at[0]),
    }
    return all(test(query[name]) for name, test in tests.items() if name in query)
