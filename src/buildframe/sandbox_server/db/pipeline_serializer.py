"""Serialize pipelines: whole, or embedded in builds."""

from __future__ import annotations

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.serializers import ORIGIN, JsonObject, drop_keys, format_time, graphql_id
from buildframe.sandbox_server.db.tokens import Access
from buildframe.sandbox_server.pipeline_yaml.serializer import format_yaml, step_json
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord, repository_name
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.spec import Pipeline, fields_of
from buildframe.spec.builds import AGENT_STATES, RUNNING_STATES

_STORED = [field.name for field in fields_of(Pipeline) if field.name in PipelineRecord.__struct_fields__]
"""Fields that the response has from the record; some are formatted."""

_ONLY_IN_CREATION = ("allow_rebuilds",)
_NOT_EMBEDDED = (*_ONLY_IN_CREATION, "description", "tags", "steps")


class PipelineSerializer:
    """Serializes pipelines for a token; only editors see the webhook URL."""

    def __init__(self, db: Database) -> None:
        self._db, self._serializer = db, db.serializer
        self._cache: dict[str, tuple[PipelineEntry, JsonObject]] = {}

    def serialize(self, entry: PipelineEntry, access: Access) -> JsonObject:
        """Serialize a pipeline for its own response."""
        return drop_keys(self.serialize_created(entry, access), _ONLY_IN_CREATION)

    def serialize_embedded(self, entry: PipelineEntry, access: Access | None = None) -> JsonObject:
        """Serialize a pipeline for embedding in builds; without a token, for a webhook."""
        return drop_keys(self.serialize_created(entry, access), _NOT_EMBEDDED)

    def serialize_created(self, entry: PipelineEntry, access: Access | None) -> JsonObject:
        """Serialize a pipeline for the response to its creation."""
        cached, body = self._cache.get(entry.key, (None, {}))
        if cached is not entry:
            body = self._static_fields(entry)
            self._cache[entry.key] = entry, body
        body = body | self._counts(entry)
        if access and access.may_edit and "write_pipelines" in access.scopes:
            return body
        return body | {"provider": body["provider"] | {"webhook_url": ""}}

    def _counts(self, entry: PipelineEntry) -> JsonObject:
        of_builds = "SELECT state, count(*) FROM builds WHERE over = 0 AND pipeline_key = ? GROUP BY state"
        of_jobs = "SELECT state, count(*) FROM jobs WHERE active = 1 AND pipeline_key = ? GROUP BY state"
        builds: dict[str, int] = dict(self._db.query(of_builds, (entry.key,)))
        jobs: dict[str, int] = dict(self._db.query(of_jobs, (entry.key,)))
        return {
            "scheduled_builds_count": builds.get("scheduled", 0),
            "running_builds_count": sum(builds.get(state, 0) for state in (*RUNNING_STATES, "canceling")),
            "scheduled_jobs_count": jobs.get("scheduled", 0),
            "running_jobs_count": sum(jobs.get(state, 0) for state in AGENT_STATES),
            "waiting_jobs_count": jobs.get("waiting", 0),
        }

    def _static_fields(self, entry: PipelineEntry) -> JsonObject:
        pipeline, random = entry.pipeline, self._serializer.random
        id = self._serializer.pipeline_id(entry)
        url = self._serializer.pipeline_url(entry)
        return {
            "id": id,
            "graphql_id": graphql_id("Pipeline", id),
            "url": url,
            "web_url": f"{ORIGIN}/{entry.path}",
            "builds_url": f"{url}/builds",
            "badge_url": f"{ORIGIN}/badges/{random.sha('badge', id)}.svg",
            **{name: getattr(pipeline, name) for name in _STORED},
            "provider": {
                "id": pipeline.provider,
                "webhook_url": f"{ORIGIN}/deliver/{random.sha('webhook', id)}",
                "settings": {"repository": repository_name(pipeline.repository)} | pipeline.settings,
            },
            "created_by": self._serializer.serialize_user(entry.organization, pipeline.created_by),
            "created_at": format_time(pipeline.created_at, pipeline.legacy),
            "archived_at": format_time(pipeline.archived_at),
            "tags": None if pipeline.tags is None else list(pipeline.tags),
            "configuration": configuration_yaml(pipeline),
            "steps": [step_json(step) for step in pipeline.steps],
        }


def configuration_yaml(pipeline: PipelineRecord) -> str:
    """Return the YAML of a pipeline: as it was sent, or generated from its steps."""
    return format_yaml(pipeline.steps) if pipeline.configuration is None else pipeline.configuration
