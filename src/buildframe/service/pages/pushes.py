"""What a repository's host reports at the address of a pipeline's webhook: pushes, which start builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from buildframe.service.answers.exchange import JSON
from buildframe.service.answers.intake import body_of, object_in
from buildframe.service.data.bodies import Body
from buildframe.service.data.database import Data
from buildframe.service.life.engine import Engine
from buildframe.service.life.rules import CANCELABLE, Refusal
from buildframe.service.problems import Refused, unreadable
from buildframe.service.world.lines import Line
from buildframe.service.world.runs import Commit

_SHA = re.compile("[0-9a-f]{40}")
_NOTHING = "0" * 40


class Push(NamedTuple):
    """A branch or a tag that was pushed, or deleted."""

    name: str
    is_tag: bool
    sha: str
    message: str
    author: tuple[str, str] | None

    @property
    def deletes(self) -> bool:
        """Whether the branch or tag is gone."""
        return self.sha == _NOTHING


def push_in(report: Mapping[str, Any]) -> Push:
    """The push in a report `{"ref", "after", "head_commit": {"message", "author"}}`; 400 if it cannot be read."""
    ref, sha, head = report.get("ref"), report.get("after"), report.get("head_commit") or {}
    if not isinstance(ref, str) or not isinstance(sha, str) or not isinstance(head, dict):
        raise unreadable("A push has a ref, the SHA after it, and its head_commit")
    kind, _, name = ref.removeprefix("refs/").partition("/")
    if kind not in ("heads", "tags") or not name:
        raise unreadable("ref must be refs/heads/BRANCH or refs/tags/TAG")
    if not _SHA.fullmatch(sha):
        raise unreadable("after must be a full SHA")
    author = head.get("author")
    person = (str(author.get("name", "")), str(author.get("email", ""))) if isinstance(author, dict) else None
    return Push(name, kind == "tags", sha, str(head.get("message") or ""), person)


def unwanted(push: Push, settings: Mapping[str, bool | str]) -> str | None:
    """Why a pipeline of these provider settings does not build a push; None if it does."""
    if push.deletes:
        return "Deleted branches and tags are not built."
    if settings.get("trigger_mode", "code") != "code":
        return "This pipeline is not built when code is pushed."
    if not settings["build_tags" if push.is_tag else "build_branches"]:
        return f"This pipeline does not build {'tags' if push.is_tag else 'branches'}."
    return None


class Pushes:
    """Takes reports of pushes. The address is secret; no token is asked for."""

    def __init__(self, data: Data, engine: Engine) -> None:
        self._data, self._engine = data, engine
        self.routes = [
            Route("/deliver/{secret}", self._explain, methods=["GET"]),
            Route("/deliver/{secret}", self._deliver, methods=["POST"]),
        ]

    def _explain(self, http: HttpRequest) -> Response:
        with self._data.lock:
            line = self._line(http.path_params["secret"])
        return PlainTextResponse(f"Pushes to the repository of {line.path} are reported here, by POST.\n")

    async def _deliver(self, http: HttpRequest) -> Response:
        return await run_in_threadpool(self._delivered, http.path_params["secret"], await body_of(http))

    def _delivered(self, secret: str, sent: bytes | None) -> Response:
        self._engine.catch_up()
        try:
            with self._engine.turn, self._data.lock:
                status, body = self._take(self._line(secret), push_in(object_in(sent)))
        except Refused as refused:
            status, body = refused.status, refused.body
        return Response(msgspec.json.encode(body), status, media_type=JSON)

    def _line(self, secret: str) -> Line:
        bodies = self._data.bodies
        for line in self._data.lines:
            if bodies.chance.sha("webhook", bodies.pipeline_id(line)) == secret:
                return line
        raise HTTPException(404)

    def _take(self, line: Line, push: Push) -> tuple[int, Body]:
        settings = line.pipeline.settings
        if push.deletes and not push.is_tag and settings.get("cancel_deleted_branch_builds"):
            self._cancel_builds(line, push.name)
        reason = unwanted(push, settings)
        if reason is None and settings.get("skip_builds_for_existing_commits") and self._is_built(line, push):
            reason = "This commit has been built on this branch."
        return (200, {"message": reason}) if reason is not None else self._build(line, push)

    def _build(self, line: Line, push: Push) -> tuple[int, Body]:
        tag = push.name if push.is_tag else None
        commit = Commit(push.sha, push.name, push.message, "webhook", author=push.author, tag=tag)
        try:
            build = self._engine.create_build(line, commit, ignore_branch_filters=push.is_tag)
        except Refusal as why:
            return 200, {"message": str(why)}
        return 201, {"id": build.id, "number": build.number}

    def _is_built(self, line: Line, push: Push) -> bool:
        sql = "SELECT 1 FROM builds WHERE line = ? AND sha = ? AND branch = ? LIMIT 1"
        return bool(self._data.rows(sql, (line.key, push.sha, push.name)))

    def _cancel_builds(self, line: Line, branch: str) -> None:
        sql = "SELECT id, state FROM builds WHERE over = 0 AND line = ? AND branch = ? ORDER BY seq"
        for id, state in self._data.rows(sql, (line.key, branch)):
            if state in CANCELABLE:
                self._engine.cancel(id)
