"""Web pages and images that responses link to, outside the API.

They need no token: a browser has none to send, and other pages embed the images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.flaky_tests import SuiteRegistry
from buildframe.sandbox_server.pages import images
from buildframe.sandbox_server.pages.html import HTML, POLICY, Hyperlink, definition_list, page, table
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.sandbox_server.world.pipelines import PipelineEntry

SVG = "image/svg+xml"
_EMOJI = re.compile(r"[\w+-]{1,100}", re.ASCII)
_NEWEST = 30

Names = dict[str, str]
"""The parameters of a path."""


class WebPages:
    """Serves pages and images; `origin` is the URL of the sandbox."""

    def __init__(self, db: Database, simulator: Simulator, origin: str) -> None:
        self._db, self._simulator, self._origin = db, simulator, origin
        self._suites = SuiteRegistry(db)
        self.routes = list(self._routes())

    def _routes(self) -> Iterator[Route]:
        yield self._route("/emojis/{name}.svg", self._emoji, SVG)
        yield self._route("/emojis/{org}/{name}.svg", self._emoji, SVG)
        yield self._route("/avatars/{id}.svg", self._avatar, SVG)
        yield self._route("/badges/{secret}.svg", self._badge, SVG)
        yield self._route("/organizations/{org}/agents/{agent}", self._agent, HTML)
        yield self._route("/organizations/{org}/analytics/suites/{suite}/tests/{test}", self._flaky_test, HTML)
        for organization in self._db.serializer.world.organizations:
            here = f"/{organization.slug}/{{pipeline}}"
            for path, render in ((here, self._pipeline), (f"{here}/builds/{{number}}", self._build)):
                yield self._route(path, render, HTML, org=organization.slug)

    def _route(self, path: str, render: Callable[[Names], str], kind: str, **names: str) -> Route:
        def serve(http: HttpRequest) -> Response:
            self._simulator.catch_up()
            try:
                with self._db.lock:
                    text = render(names | http.path_params)
            except HttpError:
                raise HTTPException(404) from None
            return Response(text.replace(ORIGIN, self._origin), headers=POLICY, media_type=kind)

        return Route(path, serve)

    # --- images ---

    def _emoji(self, names: Names) -> str:
        if not _EMOJI.fullmatch(names["name"]):
            raise HTTPException(404)
        return images.emoji(names["name"])

    def _avatar(self, names: Names) -> str:
        try:
            return images.avatar(str(UUID(names["id"])))
        except ValueError:
            raise HTTPException(404) from None

    def _badge(self, names: Names) -> str:
        serializer = self._db.serializer
        for entry in self._db.pipelines:
            if serializer.random.sha("badge", serializer.pipeline_id(entry)) == names["secret"]:
                states = self._db.rows(
                    "SELECT state FROM builds WHERE pipeline_key = ? AND branch = ?"
                    " ORDER BY created DESC, seq DESC LIMIT 1",
                    (entry.key, entry.pipeline.default_branch),
                )
                return images.badge(states[0][0] if states else "unknown")
        raise HTTPException(404)

    # --- pages ---

    def _pipeline(self, names: Names) -> str:
        entry = lookup.find_pipeline(self._db, names["org"], names["pipeline"])
        newest = self._db.rows(
            "SELECT body FROM builds WHERE pipeline_key = ? ORDER BY created DESC, seq DESC LIMIT ?",
            (entry.key, _NEWEST),
        )
        builds = [msgspec.json.decode(body) for (body,) in newest]
        about = {"slug": entry.path, "description": entry.pipeline.description, "branch": entry.pipeline.default_branch}
        return page(
            entry.pipeline.name,
            definition_list(about),
            table(("build", "state", "branch", "message"), map(_row, builds)),
        )

    def _build(self, names: Names) -> str:
        entry = lookup.find_pipeline(self._db, names["org"], names["pipeline"])
        seq = lookup.find_build(self._db, entry, names["number"]).seq
        ((encoded,),) = self._db.rows("SELECT body FROM builds WHERE seq = ?", (seq,))
        jobs = self._db.rows("SELECT body FROM jobs WHERE build = ? ORDER BY position", (seq,))
        body = msgspec.json.decode(encoded)
        rows = (_job_row(msgspec.json.decode(job)) for (job,) in jobs)
        return page(_title(entry, body), _build_summary(entry, body), table(("job", "state", "exit status"), rows))

    def _agent(self, names: Names) -> str:
        organization = lookup.find_organization(self._db, names["org"])
        name = lookup.find_agent(self._db, organization, names["agent"])
        body = self._db.serializer.full_agent(organization, name, lost=False)
        about = ("hostname", "ip_address", "user_agent", "created_at")
        return page(name, definition_list({key: body[key] for key in about} | {"tags": ", ".join(body["meta_data"])}))

    def _flaky_test(self, names: Names) -> str:
        suite = self._suites.find(names["org"], names["suite"])
        test = self._suites.test(names["org"], suite, names["test"])
        body = self._suites.body(names["org"], suite, test)
        return page(
            body["name"], definition_list({key: value for key, value in body.items() if key not in ("id", "web_url")})
        )


def _row(build: JsonObject) -> tuple[str, list[Any]]:
    title = (build["message"] or "").split("\n")[0]
    return build["id"], [Hyperlink(f"#{build['number']}", build["web_url"]), build["state"], build["branch"], title]


def _job_row(job: JsonObject) -> tuple[str, list[Any]]:
    name = job.get("name") or job.get("label") or job.get("step_key") or job["type"]
    return job["id"], [name, job.get("state"), job.get("exit_status")]


def _title(entry: PipelineEntry, build: JsonObject) -> str:
    return f"{entry.pipeline.name} #{build['number']}"


def _build_summary(entry: PipelineEntry, build: JsonObject) -> str:
    creator = build["creator"]
    about = {key: build[key] for key in ("state", "branch", "commit", "message", "created_at", "finished_at")}
    return definition_list(
        {"pipeline": Hyperlink(entry.path, f"{ORIGIN}/{entry.path}")} | about | {"by": creator and creator["name"]}
    )
