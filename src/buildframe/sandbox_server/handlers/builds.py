"""Handlers of build operations. Knows SQL of builds; does not know HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse, list_of
from buildframe.sandbox_server.handlers.registry import HandlerGroup, handles
from buildframe.sandbox_server.handlers.sql_filters import Condition, any_of, filter_conditions
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.world.build_state import Actor, BuildRun, Commit, PullRequestInfo, TokenUser
from buildframe.sandbox_server.world.model import Organization
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.spec import (
    cancel_build,
    create_build,
    get_build,
    list_all_builds,
    list_builds,
    list_pipeline_builds,
    rebuild_build,
    unblock_job,
)

_MOST_PULL_REQUESTS = 2**31 - 1


class BuildHandlers(HandlerGroup):
    """Handles the operations on builds."""

    # --- lists ---

    @handles(list_all_builds)
    def _list_all(self, request: ApiRequest) -> ApiResponse:
        return self._respond_list(request, any_of("organization", request.access.organizations))

    @handles(list_builds)
    def _list(self, request: ApiRequest) -> ApiResponse:
        return self._respond_list(request, Condition("organization = ?", (request.path["org"],)))

    @handles(list_pipeline_builds)
    def _list_of_pipeline(self, request: ApiRequest) -> ApiResponse:
        return self._respond_list(request, Condition("pipeline_key = ?", (self._entry(request).key,)))

    def _respond_list(self, request: ApiRequest, place: Condition) -> ApiResponse:
        conditions = [place, *filter_conditions(request.filters)]
        sql = " AND ".join(condition.sql for condition in conditions)
        values = [value for condition in conditions for value in condition.values]
        ((total,),) = self._db.rows(f"SELECT count(*) FROM builds WHERE {sql}", values)  # noqa: S608  values are bound
        if self._deepest <= request.page.offset < total:
            raise error_responses.too_deep()
        heads = self._db.rows(
            f"SELECT seq, pipeline_key, body FROM builds WHERE {sql} ORDER BY created DESC, seq DESC LIMIT ? OFFSET ?",  # noqa: S608
            [*values, request.page.size, request.page.offset],
        )
        pipelines = self._embedded(request, {entry for _, entry, _ in heads})
        bodies = [_assemble(head, jobs, pipelines.get(entry)) for entry, head, jobs in self._with_jobs(request, heads)]
        return ApiResponse(list_of(bodies), total)

    def _embedded(self, request: ApiRequest, entries: set[str]) -> dict[str, bytes]:
        """Return the embedded pipelines by key; nothing if the request excludes them."""
        if request.filters.get("exclude_pipeline"):
            return {}
        return {entry: self._serializer.embedded(self._db.pipelines[entry], request.access) for entry in entries}

    def _with_jobs(
        self, request: ApiRequest, heads: Sequence[tuple[Any, ...]]
    ) -> list[tuple[str, bytes, list[bytes] | None]]:
        """Return the pipeline key, the body and, unless excluded, the jobs of each build."""
        if request.filters.get("exclude_jobs"):
            return [(entry, head, None) for _, entry, head in heads]
        jobs: dict[int, list[bytes]] = {head[0]: [] for head in heads}
        chosen = any_of("build", tuple(jobs))
        every = bool(request.filters.get("include_retried_jobs"))
        sql = f"SELECT build, body FROM jobs WHERE {chosen.sql} AND retried <= ? ORDER BY build, position"  # noqa: S608
        for seq, body in self._db.rows(sql, [*chosen.values, every]):
            jobs[seq].append(body)
        return [(entry, head, jobs[seq]) for seq, entry, head in heads]

    # --- single builds ---

    @handles(get_build)
    def _get(self, request: ApiRequest) -> ApiResponse:
        return self._respond_build(request, self._find_build(request))

    @handles(create_build)
    def _create(self, request: ApiRequest) -> ApiResponse:
        entry, properties = self._entry(request), request.properties()
        wrong = list(_problems(properties))
        if wrong:
            raise error_responses.invalid(wrong)
        commit = _commit(properties, entry, request.access.user)
        ignores = properties.get("ignore_pipeline_branch_filters", False)
        with _rejections():
            return self._respond_build(
                request, self._simulator.create_build(entry, commit, ignore_branch_filters=ignores)
            )

    @handles(cancel_build)
    def _cancel(self, request: ApiRequest) -> ApiResponse:
        with _rejections():
            return self._respond_build(request, self._simulator.cancel(self._find_build(request).id))

    @handles(rebuild_build)
    def _rebuild(self, request: ApiRequest) -> ApiResponse:
        with _rejections():
            return self._respond_build(
                request, self._simulator.rebuild(self._find_build(request).id, request.access.user)
            )

    @handles(unblock_job)
    def _unblock(self, request: ApiRequest) -> ApiResponse:
        build = self._find_build(request)
        job = lookup.find_job(build, request.path["job"])
        properties = request.properties()
        who = self._unblocker(request, properties.get("unblocker"))
        with _rejections():
            self._simulator.unblock(build.id, job.id, who, properties.get("fields", {}))
        build = self._find_build(request)
        return ApiResponse(msgspec.json.encode(self._db.serializer.job(build, build.job(job.id))))

    def _unblocker(self, request: ApiRequest, id: str | None) -> Actor:
        """Return the index of a member by UUID; without a UUID, the user of the token."""
        if id is None:
            return request.access.user
        organization = lookup.find_organization(self._db, request.path["org"])
        members = [self._db.serializer.user_id(organization, person) for person in organization.people]
        if id.lower() not in members:
            raise error_responses.invalid([("unblocker", "is not a member of the organization")])
        return members.index(id.lower())

    def _entry(self, request: ApiRequest) -> PipelineEntry:
        return lookup.find_pipeline(self._db, request.path["org"], request.path["pipeline"])

    def _find_build(self, request: ApiRequest) -> BuildRun:
        """Return the build in the path of a request."""
        return lookup.find_build(self._db, self._entry(request), request.path["number"])

    def _respond_build(self, request: ApiRequest, build: BuildRun) -> ApiResponse:
        """Respond with a build, whose agents have all fields."""
        entry = self._db.pipelines[build.pipeline_key]
        heads = self._db.rows("SELECT seq, pipeline_key, body FROM builds WHERE id = ?", (build.id,))
        ((_, head, jobs),) = self._with_jobs(request, heads)
        full_jobs = [self._with_full_agent(entry.organization, job) for job in jobs or ()]
        return ApiResponse(_assemble(head, full_jobs, self._serializer.embedded(entry, request.access)))

    def _with_full_agent(self, organization: Organization, body: bytes) -> bytes:
        job = msgspec.json.decode(body)
        if job.get("agent"):
            lost = job.get("signal_reason") == "agent_lost"
            job["agent"] = self._db.serializer.full_agent(organization, job["agent"]["name"], lost)
        return msgspec.json.encode(job)


@contextmanager
def _rejections() -> Iterator[None]:
    """Convert `ActionRejected` to a response with status 422."""
    try:
        yield
    except ActionRejected as reason:
        raise HttpError(422, str(reason)) from None


def _problems(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield problems that the declared types do not detect."""
    if not 0 < properties.get("pull_request_id", 1) <= _MOST_PULL_REQUESTS:
        yield "pull_request_id", f"must be from 1 to {_MOST_PULL_REQUESTS}"


def _commit(properties: Mapping[str, Any], entry: PipelineEntry, user: TokenUser) -> Commit:
    author = properties.get("author", {"name": user.name, "email": user.email})
    return Commit(
        sha=properties["commit"],
        branch=properties["branch"],
        message=properties.get("message", ""),
        source="api",
        creator=user,
        author=(author.get("name", ""), author.get("email", "")),
        env=dict(properties.get("env", {})),
        meta_data=dict(properties.get("meta_data", {})),
        clean_checkout=properties.get("clean_checkout", False),
        pull_request=_pull_request(properties, entry),
    )


def _pull_request(properties: Mapping[str, Any], entry: PipelineEntry) -> PullRequestInfo | None:
    if "pull_request_id" not in properties:
        return None
    return PullRequestInfo(
        properties["pull_request_id"],
        properties.get("pull_request_base_branch", entry.pipeline.default_branch),
        properties.get("pull_request_repository"),
    )


def _assemble(head: bytes, jobs: Sequence[bytes] | None, pipeline: bytes | None) -> bytes:
    """Insert the jobs and the pipeline into the body of a build."""
    parts = [head[:-1]]
    if jobs is not None:
        parts += [b',"jobs":', list_of(jobs)]
    if pipeline is not None:
        parts += [b',"pipeline":', pipeline]
    return b"".join([*parts, b"}"])
