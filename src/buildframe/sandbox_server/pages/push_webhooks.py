"""Receive pushes that a repository host reports to the webhook URL of a pipeline."""

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

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.serializers import JsonObject
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers.registry import JSON, parse_object, read_body
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.sandbox_server.world.build_state import Commit
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.spec.builds import CANCELABLE_STATES

_SHA = re.compile("[0-9a-f]{40}")
_DELETED_SHA = "0" * 40


class PushReport(NamedTuple):
    """A pushed or deleted branch or tag."""

    name: str
    is_tag: bool
    sha: str
    message: str
    author: tuple[str, str] | None


def parse_push(report: Mapping[str, Any]) -> PushReport:
    """Parse a report `{"ref", "after", "head_commit": {"message", "author"}}`. Raises 400 if it is invalid."""
    ref, sha, head = report.get("ref"), report.get("after"), report.get("head_commit") or {}
    if not isinstance(ref, str) or not isinstance(sha, str) or not isinstance(head, dict):
        raise HttpError(400, "A push must have `ref`, `after` and `head_commit`")
    kind, _, name = ref.removeprefix("refs/").partition("/")
    if kind not in ("heads", "tags") or not name:
        raise HttpError(400, "ref must be refs/heads/BRANCH or refs/tags/TAG")
    if not _SHA.fullmatch(sha):
        raise HttpError(400, "after must be a full SHA")
    author = head.get("author")
    person = (str(author.get("name", "")), str(author.get("email", ""))) if isinstance(author, dict) else None
    return PushReport(name, kind == "tags", sha, str(head.get("message") or ""), person)


def check_push(push: PushReport, settings: Mapping[str, bool | str]) -> None:
    """Raise `ActionRejected` if the provider settings reject a push."""
    if push.sha == _DELETED_SHA:
        raise ActionRejected("Deleted branches and tags are not built.")
    if settings.get("trigger_mode", "code") != "code":
        raise ActionRejected("This pipeline is not built when code is pushed.")
    if not settings["build_tags" if push.is_tag else "build_branches"]:
        raise ActionRejected(f"This pipeline does not build {'tags' if push.is_tag else 'branches'}.")


def find_by_secret(db: Database, purpose: str, secret: str) -> PipelineEntry:
    """Return the pipeline whose URL for a purpose contains a secret. Raises 404 if there is none."""
    for entry in db.pipelines.values():
        if db.serializer.random.sha(purpose, db.serializer.pipeline_id(entry)) == secret:
            return entry
    raise HTTPException(404)


class PushRoutes:
    """Receives reports of pushes. The URL is secret, so no token is needed."""

    def __init__(self, simulator: Simulator) -> None:
        self._db, self._simulator, path = simulator.db, simulator, "/deliver/{secret}"
        self.routes = [Route(path, self._explain), Route(path, self._deliver, methods=["POST"])]

    def _explain(self, http: HttpRequest) -> Response:
        with self._db.lock:
            entry = find_by_secret(self._db, "webhook", http.path_params["secret"])
        return PlainTextResponse(f"Pushes to the repository of {entry.path} are reported here, by POST.\n")

    async def _deliver(self, http: HttpRequest) -> Response:
        return await run_in_threadpool(self._delivered, http.path_params["secret"], await read_body(http))

    def _delivered(self, secret: str, sent: bytes | None) -> Response:
        self._simulator.catch_up()
        try:
            with self._simulator.lock, self._db.lock:
                entry = find_by_secret(self._db, "webhook", secret)
                status, body = self._take(entry, parse_push(parse_object(sent)))
        except HttpError as refused:
            status, body = refused.status, refused.body
        return Response(msgspec.json.encode(body), status, media_type=JSON)

    def _take(self, entry: PipelineEntry, push: PushReport) -> tuple[int, JsonObject]:
        settings, tag = entry.pipeline.settings, push.name if push.is_tag else None
        if push.sha == _DELETED_SHA and not push.is_tag and settings.get("cancel_deleted_branch_builds"):
            self._cancel_builds(entry, push.name)
        commit = Commit(push.sha, push.name, push.message, "webhook", author=push.author, tag=tag)
        try:
            check_push(push, settings)
            if settings.get("skip_builds_for_existing_commits") and self._is_built(entry, push):
                raise ActionRejected("This commit has been built on this branch.")
            build = self._simulator.create_build(entry, commit, ignore_branch_filters=push.is_tag)
        except ActionRejected as why:
            return 200, {"message": str(why)}
        return 201, {"id": build.id, "number": build.number}

    def _is_built(self, entry: PipelineEntry, push: PushReport) -> bool:
        sql = "SELECT 1 FROM builds WHERE pipeline_key = ? AND sha = ? AND branch = ? LIMIT 1"
        return bool(self._db.query(sql, (entry.key, push.sha, push.name)))

    def _cancel_builds(self, entry: PipelineEntry, branch: str) -> None:
        sql = "SELECT id, state FROM builds WHERE over = 0 AND pipeline_key = ? AND branch = ? ORDER BY seq"
        for id, state in self._db.query(sql, (entry.key, branch)):
            if state in CANCELABLE_STATES:
                self._simulator.cancel(id)
