"""Handlers of build operations. Knows SQL of builds; does not know HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from buildframe import spec
from buildframe.sandbox_server.db.serializers import JsonObject
from buildframe.sandbox_server.error_responses import invalid, too_deep
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles
from buildframe.sandbox_server.handlers.sql_filters import Condition, all_filters, any_of
from buildframe.sandbox_server.world.build_state import AGENT_LOST, Actor, BuildRun, Commit, PullRequestInfo, TokenUser
from buildframe.sandbox_server.world.pipelines import PipelineEntry

_MAX_PULL_REQUEST_ID = 2**31 - 1
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BuildHandlers(HandlerGroup):
    """Handles the operations on builds."""

    @handles(spec.list_all_builds, spec.list_builds, spec.list_pipeline_builds)
    def _list(self, request: ApiRequest) -> ApiResponse:
        if "pipeline" in request.path:
            place = Condition("pipeline_key = ?", (lookup.find_pipeline(self._db, request.path).key,))
        elif "org" in request.path:
            place = Condition("organization = ?", (request.path["org"],))
        else:
            place = any_of("organization", request.access.organizations)
        sql, values = all_filters(place, request.filters)
        ((total,),) = self._db.query(f"SELECT count(*) FROM builds WHERE {sql}", values)  # noqa: S608  values are bound
        if self._deepest <= request.page.offset < total:
            raise too_deep()
        rows = self._db.query(
            f"SELECT seq, pipeline_key, body FROM builds WHERE {sql} ORDER BY created DESC, seq DESC LIMIT ? OFFSET ?",  # noqa: S608
            [*values, request.page.size, request.page.offset],
        )
        return ApiResponse(self._bodies(request, rows), total)

    def _bodies(self, request: ApiRequest, rows: Sequence[tuple[Any, ...]]) -> list[JsonObject]:
        """Return the bodies of builds with their jobs and pipelines, unless the request excludes these."""
        bodies: dict[int, JsonObject] = {seq: _FIELDS.decode(body) for seq, _, body in rows}
        if not request.filters.get("exclude_jobs"):
            jobs = self._jobs(tuple(bodies), bool(request.filters.get("include_retried_jobs")))
            for seq, body in bodies.items():
                body["jobs"] = jobs[seq]
        if not request.filters.get("exclude_pipeline"):
            entries = [self._db.pipelines[key] for key in {key for _, key, _ in rows}]
            embedded = {entry.key: self._serializer.serialize_embedded(entry, request.access) for entry in entries}
            pipelines = {key: msgspec.Raw(msgspec.json.encode(body)) for key, body in embedded.items()}
            for seq, key, _ in rows:
                bodies[seq]["pipeline"] = pipelines[key]
        return list(bodies.values())

    def _jobs(self, builds: Sequence[int], include_retried: bool) -> dict[int, list[msgspec.Raw]]:
        jobs: dict[int, list[msgspec.Raw]] = {seq: [] for seq in builds}
        for seq, body in self._db.load_job_bodies(builds, include_retried):
            jobs[seq].append(msgspec.Raw(body))
        return jobs

    @handles(spec.get_build)
    def _get(self, request: ApiRequest) -> ApiResponse:
        build = lookup.find_build(self._db, request.path)
        response = self._respond_build(request, build)
        if request.filters.get("include_test_engine"):
            response.body["test_engine"] = {"runs": self._test_runs(build)}
        return response

    def _test_runs(self, build: BuildRun) -> list[JsonObject]:
        """Return the runs of test suites in a build."""
        if not build.is_over or build.state not in ("passed", "failed"):
            return []
        entry = self._db.pipelines[build.pipeline_key]
        organization = entry.organization
        runs = []
        for suite in organization.suites:
            if entry.path == f"{organization.slug}/{suite.pipeline}":
                id = self._db.serializer.suite_id(organization, suite)
                run = {"id": self._db.serializer.run_id(suite, build), "suite": {"id": id, "slug": suite.slug}}
                runs.append(run)
        return runs

    @handles(spec.create_build)
    def _create(self, request: ApiRequest) -> ApiResponse:
        entry, properties = lookup.find_pipeline(self._db, request.path), request.properties()
        if not 0 < properties.get("pull_request_id", 1) <= _MAX_PULL_REQUEST_ID:
            raise invalid([("pull_request_id", f"must be from 1 to {_MAX_PULL_REQUEST_ID}")])
        commit = _commit(properties, entry, request.access.user)
        ignores = properties.get("ignore_pipeline_branch_filters", False)
        build = self._simulator.create_build(entry, commit, ignore_branch_filters=ignores)
        return self._respond_build(request, build)

    @handles(spec.cancel_build)
    def _cancel(self, request: ApiRequest) -> ApiResponse:
        build = lookup.find_build(self._db, request.path)
        return self._respond_build(request, self._simulator.cancel(build.id))

    @handles(spec.rebuild_build)
    def _rebuild(self, request: ApiRequest) -> ApiResponse:
        build = lookup.find_build(self._db, request.path)
        return self._respond_build(request, self._simulator.rebuild(build.id, request.access.user))

    @handles(spec.unblock_job)
    def _unblock(self, request: ApiRequest) -> ApiResponse:
        build, job = lookup.find_job(self._db, request.path)
        properties = request.properties()
        who = self._unblocker(request, properties.get("unblocker"))
        self._simulator.unblock(build.id, job.id, who, properties.get("fields", {}))
        return ApiResponse(self._db.serializer.serialize_job(*lookup.find_job(self._db, request.path)))

    def _unblocker(self, request: ApiRequest, id: str | None) -> Actor:
        """Return the index of a member by UUID; without a UUID, the user of the token."""
        if id is None:
            return request.access.user
        organization = lookup.find_organization(self._db, request.path)
        members = [self._db.serializer.find_user(organization, place).id for place in range(len(organization.people))]
        if id.lower() not in members:
            raise invalid([("unblocker", "is not a member of the organization")])
        return members.index(id.lower())

    def _respond_build(self, request: ApiRequest, build: BuildRun) -> ApiResponse:
        """Respond with a build, whose agents have all fields."""
        rows = self._db.query("SELECT seq, pipeline_key, body FROM builds WHERE id = ?", (build.id,))
        (body,) = self._bodies(request, rows)
        if "jobs" not in body:
            return ApiResponse(body)
        jobs: list[JsonObject] = [msgspec.json.decode(job) for job in body["jobs"]]
        if states := request.filters.get("job_states"):
            assert isinstance(states, list)
            jobs = [job for job in jobs if job.get("state") in states]
        lost = {job.id for job in build.jobs if job.signal_reason == AGENT_LOST}
        organization = self._db.pipelines[build.pipeline_key].organization
        for job in jobs:
            if job.get("agent"):
                is_lost = job["id"] in lost
                name = job["agent"]["name"]
                job["agent"] = self._db.serializer.serialize_full_agent(organization, name, is_lost)
        return ApiResponse(body | {"jobs": jobs})


def _commit(properties: Mapping[str, Any], entry: PipelineEntry, user: TokenUser) -> Commit:
    author = properties.get("author") or {"name": user.name, "email": user.email}
    pull_request = None
    if "pull_request_id" in properties:
        base = properties.get("pull_request_base_branch", entry.pipeline.default_branch)
        pull_request = PullRequestInfo(properties["pull_request_id"], base, properties.get("pull_request_repository"))
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
        pull_request=pull_request,
    )
