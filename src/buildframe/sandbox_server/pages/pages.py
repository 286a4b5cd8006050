"""Serve a stub for each web page and image that responses link to. All text is escaped, and nothing runs.

They need no token: a browser has none to send, and other pages embed the images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html import escape
from uuid import UUID

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from buildframe.sandbox_server.db.serializers import JsonObject
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.flaky_tests import SuiteRegistry
from buildframe.sandbox_server.handlers.suites import SuiteHandlers
from buildframe.sandbox_server.pages.push_webhooks import find_by_secret
from buildframe.sandbox_server.simulation.simulator import Simulator

_HTML, _SVG = "text/html; charset=utf-8", "image/svg+xml"
_POLICY = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}
_EMOJI = re.compile(r"[\w+-]{1,100}", re.ASCII)
_NEWEST = 30
_SHOWN = (
    "name", "label", "type", "number", "state", "branch", "commit", "message", "description", "created_at",
    "finished_at", "exit_status", "hostname", "user_agent", "scope", "location", "instances", "latest_occurrence_at",
)  # fmt: skip
"""Fields that pages show: nothing personal or secret, because pages need no token."""

Names = dict[str, str]
"""The parameters of a path."""


def html(title: str, about: JsonObject, records: Iterable[JsonObject] = ()) -> str:
    """Return a page about one record with others below it, whose ids are those of elements, for URL fragments."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>{_fields(about)}"
    body += "".join(f'<article id="{escape(record["id"])}">{_fields(record)}</article>' for record in records)
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _fields(record: JsonObject) -> str:
    shown = ((name, record[name]) for name in _SHOWN if record.get(name) is not None)
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{escape(str(value))}</dd>' for name, value in shown)}</dl>"


def svg(label: str) -> str:
    """Return an image that consists of its label."""
    text = f'<text x="4" y="14" font-family="sans-serif" font-size="11">{escape(label)}</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 130 20" aria-label="{escape(label)}">{text}</svg>'


class WebPages:
    """Serves pages and images."""

    def __init__(self, simulator: Simulator) -> None:
        self._db, self._simulator = simulator.db, simulator
        self._tests, self._suites = SuiteRegistry(self._db), SuiteHandlers(simulator, 0)
        self.routes = list(self._routes())

    def _routes(self) -> Iterator[Route]:
        yield self._route("/emojis/{name}.svg", self._emoji, _SVG)
        yield self._route("/emojis/{org}/{name}.svg", self._emoji, _SVG)
        yield self._route("/avatars/{id}.svg", self._avatar, _SVG)
        yield self._route("/badges/{secret}.svg", self._badge, _SVG)
        yield self._route("/organizations/{org}/agents/{agent}", self._agent, _HTML)
        suite = "/organizations/{org}/analytics/suites/{suite}"
        yield self._route(suite, self._suite, _HTML)
        yield self._route(f"{suite}/runs/{{run}}", self._run, _HTML)
        yield self._route(f"{suite}/tests/{{test}}", self._test, _HTML)
        for organization in self._db.serializer.world.organizations:
            here = f"/{organization.slug}/{{pipeline}}"
            yield self._route(here, self._pipeline, _HTML, org=organization.slug)
            yield self._route(f"{here}/builds/{{number}}", self._build, _HTML, org=organization.slug)

    def _route(self, path: str, render: Callable[[Names], str], kind: str, **names: str) -> Route:
        def serve(http: HttpRequest) -> Response:
            self._simulator.catch_up()
            try:
                with self._db.lock:
                    return Response(render(names | http.path_params), headers=_POLICY, media_type=kind)
            except (HttpError, ValueError):
                raise HTTPException(404) from None

        return Route(path, serve)

    def _records(self, sql: str, *values: object) -> list[JsonObject]:
        return [msgspec.json.decode(body) for (body,) in self._db.query(sql, values)]

    # --- images ---

    def _emoji(self, names: Names) -> str:
        if not _EMOJI.fullmatch(names["name"]):
            raise HTTPException(404)
        return svg(f":{names['name']}:")

    def _avatar(self, names: Names) -> str:
        return svg(f"avatar {UUID(names['id'])}")

    def _badge(self, names: Names) -> str:
        entry = find_by_secret(self._db, "badge", names["secret"])
        sql = "SELECT state FROM builds WHERE pipeline_key = ? AND branch = ? ORDER BY created DESC, seq DESC LIMIT 1"
        states = self._db.query(sql, (entry.key, entry.pipeline.default_branch))
        return svg(f"build: {states[0][0] if states else 'unknown'}")

    # --- pages ---

    def _pipeline(self, names: Names) -> str:
        entry = lookup.find_pipeline(self._db, names)
        sql = "SELECT body FROM builds WHERE pipeline_key = ? ORDER BY created DESC, seq DESC LIMIT ?"
        builds = self._records(sql, entry.key, _NEWEST)
        return html(entry.pipeline.name, {"description": entry.pipeline.description}, builds)

    def _build(self, names: Names) -> str:
        entry = lookup.find_pipeline(self._db, names)
        seq = lookup.find_build(self._db, names).seq
        (build,) = self._records("SELECT body FROM builds WHERE seq = ?", seq)
        jobs: list[JsonObject] = [msgspec.json.decode(body) for _, body in self._db.load_job_bodies([seq])]
        return html(f"{entry.pipeline.name} #{build['number']}", build, jobs)

    def _agent(self, names: Names) -> str:
        organization, name = lookup.find_agent(self._db, names)
        return html(name, self._db.serializer.serialize_full_agent(organization, name))

    def _suite(self, names: Names) -> str:
        body = self._suites.suite(names)
        return html(body["name"], body)

    def _run(self, names: Names) -> str:
        body = self._suites.run(names)
        return html(f"run {body['id']}", body)

    def _test(self, names: Names) -> str:
        body = self._suites.test(names)
        flaky = [test for test in self._tests.list_tests(names["org"], names["suite"]) if test.id == body["id"]]
        return html(body["name"], body | (flaky[0].body(self._db.load_now()) if flaky else {}))
