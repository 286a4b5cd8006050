"""Handlers of jobs: the list of a build's jobs in pages with cursors, one job, and its retry."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import get_args
from urllib.parse import urlencode

from buildframe import spec
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers import lookup, routes
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.world.build_state import BuildRun, JobRun

_CURSORS = ("after", "before")


class JobHandlers(HandlerGroup):
    """Handles the operations on jobs, except for logs and block steps."""

    @handles(spec.list_build_jobs)
    def _list(self, request: ApiRequest) -> ApiResponse:
        build = lookup.find_build(self._db, request.path)
        jobs = self._filter(build, request)
        start = _find_start(jobs, request)
        shown = jobs[start : start + request.page.size]
        items = [self._db.serializer.serialize_job(build, job) for job in shown]
        return ApiResponse({"items": items, "links": _links(request, jobs, start)}, len(jobs))

    def _filter(self, build: BuildRun, request: ApiRequest) -> list[JobRun]:
        states = request.filters.get("state", [])
        assert isinstance(states, list)
        if unknown := set(states) - set(get_args(spec.JobState)):
            raise HttpError(400, f"Invalid state: {', '.join(sorted(unknown))}")
        jobs = build.jobs
        if not request.filters.get("include_retried_jobs", True):
            jobs = [job for job in jobs if job.retried_in is None]
        if not states:
            return jobs
        slots = self._db.pipelines.plans[build.plan].slots
        with_state = [job for job in jobs if slots[job.step].step.kind != "waiter"]
        return [job for job in with_state if self._db.serializer.state_of_job(build, job) in states]

    @handles(spec.get_job)
    def _get(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._db.serializer.serialize_job(*lookup.find_job(self._db, request.path)))

    @handles(spec.retry_job)
    def _retry(self, request: ApiRequest) -> ApiResponse:
        build, job = lookup.find_job(self._db, request.path)
        if build.cancel_reason is None and (job.state not in ("failed", "timed_out") or job.retried_in is not None):
            raise HttpError(400, "Only jobs that failed or timed out can be retried, each once")
        again = self._simulator.retry(build.id, job.id, request.access.user)
        return ApiResponse(self._db.serializer.serialize_job(lookup.find_build(self._db, request.path), again))

    @handles(routes.list_artifacts)
    def _list_artifacts(self, request: ApiRequest) -> ApiResponse:
        lookup.find_job(self._db, request.path)
        return ApiResponse([])


def _find_start(jobs: Sequence[JobRun], request: ApiRequest) -> int:
    """Return the position of the first job of the page that a cursor names."""
    cursors = {name: value for name, value in request.query if name in _CURSORS}
    if len(cursors) > 1:
        raise HttpError(400, "after and before cannot be combined")
    if not cursors:
        return 0
    ((name, cursor),) = cursors.items()
    ids = [job.id for job in jobs]
    id = _parse_cursor(cursor)
    if id not in ids:
        raise HttpError(400, f"Invalid cursor: {name}")
    position = ids.index(id)
    return position + 1 if name == "after" else max(0, position - request.page.size)


def _links(request: ApiRequest, jobs: Sequence[JobRun], start: int) -> JsonObject:
    """Return the URLs of this page, and of the next, previous and first one if there is one."""
    end = start + request.page.size
    requested = next((pair for pair in request.query if pair[0] in _CURSORS), None)
    cursors: dict[str, tuple[str, str] | None] = {"self": requested}
    if end < len(jobs):
        cursors["next"] = "after", _format_cursor(jobs[end - 1].id)
    if 0 < start < len(jobs):
        cursors |= {"prev": ("before", _format_cursor(jobs[start].id)), "first": None}
    others = [pair for pair in request.query if pair[0] not in (*_CURSORS, "per_page")]
    address = f"{ORIGIN}{routes.route_path(request.endpoint).format_map(request.path)}"
    size = ("per_page", str(request.page.size))
    links = {}
    for name, cursor in cursors.items():
        query = [*others, size] if cursor is None else [*others, cursor, size]
        links[name] = f"{address}?{urlencode(query)}"
    return links


def _format_cursor(id: str) -> str:
    return base64.urlsafe_b64encode(id.encode()).decode().rstrip("=")


def _parse_cursor(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""
