"""Everything that answers hand out an address of and that is no part of the API: pages for people, and pictures.

None of it asks for a token: a browser has none to send, and pictures stand in other pages.
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

from buildframe.service.answers import finding
from buildframe.service.answers.suites import Suites
from buildframe.service.data.bodies import ORIGIN, Body
from buildframe.service.data.database import Data
from buildframe.service.life.engine import Engine
from buildframe.service.pages import drawings
from buildframe.service.pages.markup import HTML, POLICY, Link, facts, page, table
from buildframe.service.problems import Refused
from buildframe.service.world.lines import Line

SVG = "image/svg+xml"
_EMOJI = re.compile(r"[\w+-]{1,100}", re.ASCII)
_NEWEST = 30

Names = dict[str, str]
"""The names in an address."""


class Pages:
    """Serves them, under the sandbox's own address `origin`."""

    def __init__(self, data: Data, engine: Engine, origin: str) -> None:
        self._data, self._engine, self._origin = data, engine, origin
        self._suites = Suites(data)
        self.routes = list(self._routes())

    def _routes(self) -> Iterator[Route]:
        yield self._route("/emojis/{name}.svg", self._emoji, SVG)
        yield self._route("/emojis/{org}/{name}.svg", self._emoji, SVG)
        yield self._route("/avatars/{id}.svg", self._avatar, SVG)
        yield self._route("/badges/{secret}.svg", self._badge, SVG)
        yield self._route("/organizations/{org}/agents/{agent}", self._agent, HTML)
        yield self._route("/organizations/{org}/analytics/suites/{suite}/tests/{test}", self._flaky_test, HTML)
        for organization in self._data.bodies.world.organizations:
            here = f"/{organization.slug}/{{pipeline}}"
            for path, tell in ((here, self._pipeline), (f"{here}/builds/{{number}}", self._build)):
                yield self._route(path, tell, HTML, org=organization.slug)

    def _route(self, path: str, tell: Callable[[Names], str], kind: str, **names: str) -> Route:
        def serve(http: HttpRequest) -> Response:
            self._engine.catch_up()
            try:
                with self._data.lock:
                    text = tell(names | http.path_params)
            except Refused:
                raise HTTPException(404) from None
            return Response(text.replace(ORIGIN, self._origin), headers=POLICY, media_type=kind)

        return Route(path, serve)

    # --- pictures ---

    def _emoji(self, names: Names) -> str:
        if not _EMOJI.fullmatch(names["name"]):
            raise HTTPException(404)
        return drawings.emoji(names["name"])

    def _avatar(self, names: Names) -> str:
        try:
            return drawings.avatar(str(UUID(names["id"])))
        except ValueError:
            raise HTTPException(404) from None

    def _badge(self, names: Names) -> str:
        bodies = self._data.bodies
        for line in self._data.lines:
            if bodies.chance.sha("badge", bodies.pipeline_id(line)) == names["secret"]:
                sql = "SELECT state FROM builds WHERE line = ? AND branch = ? ORDER BY created DESC, seq DESC LIMIT 1"
                states = self._data.rows(sql, (line.key, line.pipeline.default_branch))
                return drawings.badge(states[0][0] if states else "unknown")
        raise HTTPException(404)

    # --- pages ---

    def _pipeline(self, names: Names) -> str:
        line = finding.line(self._data, names["org"], names["pipeline"])
        newest = self._data.rows(
            "SELECT body FROM builds WHERE line = ? ORDER BY created DESC, seq DESC LIMIT ?", (line.key, _NEWEST)
        )
        builds = [msgspec.json.decode(body) for (body,) in newest]
        about = {"slug": line.path, "description": line.pipeline.description, "branch": line.pipeline.default_branch}
        return page(line.pipeline.name, facts(about), table(("build", "state", "branch", "message"), map(_row, builds)))

    def _build(self, names: Names) -> str:
        line = finding.line(self._data, names["org"], names["pipeline"])
        seq = finding.build(self._data, line, names["number"]).seq
        ((body,),) = self._data.rows("SELECT body FROM builds WHERE seq = ?", (seq,))
        jobs = self._data.rows("SELECT body FROM jobs WHERE build = ? ORDER BY position", (seq,))
        told = msgspec.json.decode(body)
        rows = (_job_row(msgspec.json.decode(job)) for (job,) in jobs)
        return page(_title(line, told), _facts_of(line, told), table(("job", "state", "exit status"), rows))

    def _agent(self, names: Names) -> str:
        organization = finding.organization(self._data, names["org"])
        name = finding.agent(self._data, organization, names["agent"])
        told = self._data.bodies.whole_agent(organization, name, lost=False)
        about = ("hostname", "ip_address", "user_agent", "created_at")
        return page(name, facts({key: told[key] for key in about} | {"tags": ", ".join(told["meta_data"])}))

    def _flaky_test(self, names: Names) -> str:
        suite = self._suites.find(names["org"], names["suite"])
        test = self._suites.test(names["org"], suite, names["test"])
        told = self._suites.body(names["org"], suite, test)
        return page(told["name"], facts({key: value for key, value in told.items() if key not in ("id", "web_url")}))


def _row(build: Body) -> tuple[str, list[Any]]:
    title = (build["message"] or "").split("\n")[0]
    return build["id"], [Link(f"#{build['number']}", build["web_url"]), build["state"], build["branch"], title]


def _job_row(job: Body) -> tuple[str, list[Any]]:
    name = job.get("name") or job.get("label") or job.get("step_key") or job["type"]
    return job["id"], [name, job.get("state"), job.get("exit_status")]


def _title(line: Line, build: Body) -> str:
    return f"{line.pipeline.name} #{build['number']}"


def _facts_of(line: Line, build: Body) -> str:
    creator = build["creator"]
    about = {key: build[key] for key in ("state", "branch", "commit", "message", "created_at", "finished_at")}
    return facts({"pipeline": Link(line.path, f"{ORIGIN}/{line.path}")} | about | {"by": creator and creator["name"]})
