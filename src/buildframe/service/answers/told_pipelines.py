"""Pipelines as the service tells of them: whole, and smaller inside builds."""

from __future__ import annotations

import msgspec

from buildframe.service.data import stamps
from buildframe.service.data.access import Access
from buildframe.service.data.bodies import ORIGIN, Body, graphql_id, without
from buildframe.service.data.database import Data
from buildframe.service.texts.step_texts import text_of, told
from buildframe.service.world.lines import Line
from buildframe.service.world.records import Pipeline, repository_name

_ONLY_WHOLE = ("description", "tags", "steps")
_ONLY_CREATED = ("allow_rebuilds",)
_RUNNING_BUILDS = ("running", "failing", "canceling")
_RUNNING_JOBS = ("assigned", "running", "canceling")


class Pipelines:
    """Tells of the pipelines of the data."""

    def __init__(self, data: Data) -> None:
        self._data, self._bodies = data, data.bodies
        self._fixed: dict[str, tuple[Line, Body]] = {}

    def created(self, line: Line, access: Access) -> bytes:
        """A pipeline as the answer to its creation."""
        return msgspec.json.encode(self._seen_by(line, access))

    def whole(self, line: Line, access: Access) -> bytes:
        """A pipeline as its own answer."""
        return msgspec.json.encode(without(self._seen_by(line, access), _ONLY_CREATED))

    def embedded(self, line: Line, access: Access) -> bytes:
        """A pipeline as builds carry it."""
        return msgspec.json.encode(without(self._seen_by(line, access), _ONLY_CREATED + _ONLY_WHOLE))

    def _seen_by(self, line: Line, access: Access) -> Body:
        known, body = self._fixed.get(line.key, (None, {}))
        if known is not line:
            body = self._of_line(line)
            self._fixed[line.key] = line, body
        body = body | self._counts(line)
        if access.may_edit and "write_pipelines" in access.scopes:
            return body
        return body | {"provider": body["provider"] | {"webhook_url": ""}}

    def _counts(self, line: Line) -> Body:
        of_builds = "SELECT state, count(*) FROM builds WHERE over = 0 AND line = ? GROUP BY state"
        of_jobs = "SELECT state, count(*) FROM jobs WHERE active = 1 AND line = ? GROUP BY state"
        builds: dict[str, int] = dict(self._data.rows(of_builds, (line.key,)))
        jobs: dict[str, int] = dict(self._data.rows(of_jobs, (line.key,)))
        return {
            "scheduled_builds_count": builds.get("scheduled", 0),
            "running_builds_count": sum(builds.get(state, 0) for state in _RUNNING_BUILDS),
            "scheduled_jobs_count": jobs.get("scheduled", 0),
            "running_jobs_count": sum(jobs.get(state, 0) for state in _RUNNING_JOBS),
            "waiting_jobs_count": jobs.get("waiting", 0),
        }

    def _of_line(self, line: Line) -> Body:
        pipeline, chance = line.pipeline, self._bodies.chance
        id = self._bodies.pipeline_id(line)
        url = self._bodies.pipeline_url(line)
        return {
            "id": id,
            "graphql_id": graphql_id("Pipeline", id),
            "url": url,
            "web_url": f"{ORIGIN}/{line.path}",
            "builds_url": f"{url}/builds",
            "badge_url": f"{ORIGIN}/badges/{chance.sha('badge', id)}.svg",
            "name": pipeline.name,
            "slug": pipeline.slug,
            "description": pipeline.description,
            "repository": pipeline.repository,
            "cluster_id": pipeline.cluster_id,
            "pipeline_template_uuid": pipeline.pipeline_template_uuid,
            "branch_configuration": pipeline.branch_configuration,
            "default_branch": pipeline.default_branch,
            "provider": {
                "id": pipeline.provider,
                "webhook_url": f"{ORIGIN}/deliver/{chance.sha('webhook', id)}",
                "settings": {"repository": repository_name(pipeline.repository)} | pipeline.settings,
            },
            "skip_queued_branch_builds": pipeline.skip_queued_branch_builds,
            "skip_queued_branch_builds_filter": pipeline.skip_queued_branch_builds_filter,
            "cancel_running_branch_builds": pipeline.cancel_running_branch_builds,
            "cancel_running_branch_builds_filter": pipeline.cancel_running_branch_builds_filter,
            "allow_rebuilds": pipeline.allow_rebuilds,
            "created_by": self._bodies.whoever(line.organization, pipeline.created_by),
            "created_at": (stamps.old if pipeline.old else stamps.modern)(pipeline.created_at),
            "archived_at": stamps.modern(pipeline.archived_at),
            "env": pipeline.env,
            "tags": None if pipeline.tags is None else list(pipeline.tags),
            "configuration": configuration(pipeline),
            "steps": [told(step) for step in pipeline.steps],
            "visibility": pipeline.visibility,
        }


def configuration(pipeline: Pipeline) -> str:
    """The steps as YAML: the text that was sent, or one made from them."""
    return text_of(pipeline.steps) if pipeline.configuration is None else pipeline.configuration
