"""Handlers of pipeline operations."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from buildframe import spec
from buildframe.sandbox_server.db.pipeline_serializer import configuration_yaml
from buildframe.sandbox_server.error_responses import HttpError, invalid
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles, refuse_viewers
from buildframe.sandbox_server.pipeline_yaml.pipeline_rules import PipelineContext, change_pipeline, new_pipeline
from buildframe.sandbox_server.world.model import Organization
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord, template_uuid
from buildframe.sandbox_server.world.pipelines import PipelineEntry, organization_clusters
from buildframe.spec.pipelines import SELF_HOSTED


class PipelineHandlers(HandlerGroup):
    """Handles the operations on pipelines."""

    @handles(spec.list_pipelines)
    def _list(self, request: ApiRequest) -> ApiResponse:
        name, repository = (request.filters.get(key) for key in ("name", "repository"))
        entries = [
            entry
            for entry in self._db.pipelines.in_organization(request.path["org"])
            if name in (None, entry.pipeline.name) and repository in (None, entry.pipeline.repository)
        ]
        bodies = [self._serializer.serialize(entry, request.access) for entry in request.page.slice(entries)]
        return ApiResponse(bodies, len(entries))

    @handles(spec.get_pipeline)
    def _get(self, request: ApiRequest) -> ApiResponse:
        return self._respond(request, lookup.find_pipeline(self._db, request.path))

    @handles(spec.create_pipeline)
    def _create(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path)
        refuse_viewers(request.access)
        if not organization.has_cluster:
            request = replace(request, body={"cluster_id": None, **request.body})
        properties = request.properties()
        context, now = self._context(organization), self._db.load_now()
        pipeline = new_pipeline(properties, context, now, request.access.user)
        teams = self._teams.parse_levels(organization.slug, properties.get("teams", ()))
        with self._db.transaction():
            key = self._db.serializer.random.uuid("pipeline", self._db.take_pipeline_number())
            entry = PipelineEntry(key, organization, pipeline)
            self._db.put_pipeline(entry)
            for team, level in teams.items():
                self._teams.insert_grant(team, entry, level)
        return ApiResponse(self._serializer.serialize_created(entry, request.access))

    @handles(spec.update_pipeline)
    def _update(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        if "teams" in request.body:
            raise invalid([("teams", "are changed through the GraphQL API only")])
        text, context = configuration_yaml(entry.pipeline), self._context(entry.organization, entry)
        return self._put(request, entry, change_pipeline(entry.pipeline, text, request.properties(), context))

    def _context(self, organization: Organization, excluded: PipelineEntry | None = None) -> PipelineContext:
        slug = organization.slug
        others = [entry.pipeline for entry in self._db.pipelines.in_organization(slug) if entry is not excluded]
        random = self._db.serializer.random
        return PipelineContext(
            names=frozenset(pipeline.name for pipeline in others),
            slugs=frozenset(pipeline.slug for pipeline in others),
            clusters=frozenset(organization_clusters(self._db.serializer.world, organization)),
            templates=frozenset({template_uuid(random, slug)}),
        )

    @handles(spec.archive_pipeline, spec.unarchive_pipeline)
    def _change_archive(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        archived_at = self._db.load_now() if request.endpoint is spec.archive_pipeline else None
        if (entry.pipeline.archived_at is None) == (archived_at is None):
            raise HttpError(422, f"Pipeline could not be {'un' if archived_at is None else ''}archived.")
        return self._put(request, entry, msgspec.structs.replace(entry.pipeline, archived_at=archived_at))

    @handles(spec.delete_pipeline)
    def _delete(self, request: ApiRequest) -> ApiResponse:
        self._simulator.delete_pipeline(self._editable(request))
        return ApiResponse()

    @handles(spec.add_webhook)
    def _add_webhook(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        if entry.pipeline.provider == SELF_HOSTED:
            raise HttpError(422, "Auto-creating webhooks is not supported for your repository.")
        if entry.pipeline.has_webhook or entry.pipeline.archived_at is not None:
            raise HttpError(422, "Webhooks could not be created for your repository.")
        return self._put(request, entry, msgspec.structs.replace(entry.pipeline, has_webhook=True))

    def _editable(self, request: ApiRequest) -> PipelineEntry:
        """Return the pipeline in the path of a request, if the user can edit it."""
        entry = lookup.find_pipeline(self._db, request.path)
        refuse_viewers(request.access)
        return entry

    def _put(self, request: ApiRequest, entry: PipelineEntry, record: PipelineRecord) -> ApiResponse:
        entry = entry.changed(record)
        self._db.put_pipeline(entry)
        return self._respond(request, entry)

    def _respond(self, request: ApiRequest, entry: PipelineEntry) -> ApiResponse:
        return ApiResponse(self._serializer.serialize(entry, request.access))
