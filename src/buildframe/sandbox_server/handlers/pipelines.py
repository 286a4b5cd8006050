"""Handlers of pipeline operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.db.teams import TeamDirectory
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.messages import ApiRequest, ApiResponse, list_of, refuse_viewers
from buildframe.sandbox_server.handlers.pipeline_serializer import configuration_yaml
from buildframe.sandbox_server.handlers.registry import HandlerContext, HandlerGroup, handles
from buildframe.sandbox_server.pipeline_yaml.pipeline_rules import (
    InvalidPipeline,
    PipelineContext,
    change_pipeline,
    new_pipeline,
)
from buildframe.sandbox_server.world.model import Organization
from buildframe.sandbox_server.world.pipeline_settings import cluster_id, template_uuid
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.spec import (
    add_webhook,
    archive_pipeline,
    create_pipeline,
    delete_pipeline,
    get_pipeline,
    list_pipelines,
    unarchive_pipeline,
    update_pipeline,
)
from buildframe.spec.pipelines import SELF_HOSTED

_NO_WEBHOOK = "Auto-creating webhooks is not supported for your repository."
_WEBHOOK_EXISTS = "Webhooks could not be created for your repository."
_NOT_ARCHIVED = "Pipeline could not be archived."
_NOT_UNARCHIVED = "Pipeline could not be unarchived."


class PipelineHandlers(HandlerGroup):
    """Handles the operations on pipelines."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._pipelines, self._teams = context.db.pipelines, TeamDirectory(context.db)

    @handles(list_pipelines)
    def _list(self, request: ApiRequest) -> ApiResponse:
        entries = self._pipelines.in_organization(request.path["org"])
        page = entries[request.page.offset : request.page.offset + request.page.size]
        return ApiResponse(list_of([self._serializer.whole(entry, request.access) for entry in page]), len(entries))

    @handles(get_pipeline)
    def _get(self, request: ApiRequest) -> ApiResponse:
        return self._pipeline_response(request, self._entry(request))

    @handles(create_pipeline)
    def _create(self, request: ApiRequest) -> ApiResponse:
        organization = lookup.find_organization(self._db, request.path["org"])
        refuse_viewers(request.access)
        properties = _with_default_cluster(request, organization).properties()
        with _validated():
            context, now = self._context(organization), self._db.load_now()
            pipeline = new_pipeline(properties, context, now, request.access.user)
        teams = self._teams.parse_levels(organization.slug, properties.get("teams", ()))
        with self._pipelines.rollback_on_error(), self._db.writing():
            key = self._db.serializer.random.uuid("pipeline", self._db.next_pipeline_number())
            entry = PipelineEntry(key, organization, pipeline)
            self._db.put_pipeline(entry)
            self._teams.grant_all(entry, teams)
        return ApiResponse(self._serializer.created(entry, request.access))

    @handles(update_pipeline)
    def _update(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        if "teams" in request.body:
            raise error_responses.invalid([("teams", "are changed through the GraphQL API only")])
        properties = request.properties()
        with _validated():
            text, context = configuration_yaml(entry.pipeline), self._context(entry.organization, entry)
            pipeline = change_pipeline(entry.pipeline, text, properties, context)
        return self._put(request, entry.changed(pipeline))

    def _context(self, organization: Organization, excluded: PipelineEntry | None = None) -> PipelineContext:
        slug = organization.slug
        others = [
            entry.pipeline
            for entry in self._pipelines.in_organization(slug)
            if excluded is None or entry.key != excluded.key
        ]
        random = self._db.serializer.random
        return PipelineContext(
            names=frozenset(pipeline.name for pipeline in others),
            slugs=frozenset(pipeline.slug for pipeline in others),
            clusters=frozenset({cluster_id(random, slug)} if organization.has_cluster else ()),
            templates=frozenset({template_uuid(random, slug)}),
        )

    @handles(archive_pipeline)
    def _archive(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        if entry.pipeline.archived_at is not None:
            raise HttpError(422, _NOT_ARCHIVED)
        return self._put(request, _with(entry, archived_at=self._db.load_now()))

    @handles(unarchive_pipeline)
    def _unarchive(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        if entry.pipeline.archived_at is None:
            raise HttpError(422, _NOT_UNARCHIVED)
        return self._put(request, _with(entry, archived_at=None))

    @handles(delete_pipeline)
    def _delete(self, request: ApiRequest) -> ApiResponse:
        self._simulator.delete_pipeline(self._editable(request))
        return ApiResponse()

    @handles(add_webhook)
    def _add_webhook(self, request: ApiRequest) -> ApiResponse:
        entry = self._editable(request)
        if entry.pipeline.provider == SELF_HOSTED:
            raise HttpError(422, _NO_WEBHOOK)
        if entry.pipeline.has_webhook or entry.pipeline.archived_at is not None:
            raise HttpError(422, _WEBHOOK_EXISTS)
        return self._put(request, _with(entry, has_webhook=True))

    # --- helpers ---

    def _entry(self, request: ApiRequest) -> PipelineEntry:
        return lookup.find_pipeline(self._db, request.path["org"], request.path["pipeline"])

    def _editable(self, request: ApiRequest) -> PipelineEntry:
        """Return the pipeline in the path of a request, if the user can edit it."""
        entry = self._entry(request)
        refuse_viewers(request.access)
        return entry

    def _put(self, request: ApiRequest, entry: PipelineEntry) -> ApiResponse:
        self._db.put_pipeline(entry)
        return self._pipeline_response(request, entry)

    def _pipeline_response(self, request: ApiRequest, entry: PipelineEntry) -> ApiResponse:
        return ApiResponse(self._serializer.whole(entry, request.access))


def _with_default_cluster(request: ApiRequest, organization: Organization) -> ApiRequest:
    """Default `cluster_id` to null in organizations without clusters."""
    if organization.has_cluster:
        return request
    return replace(request, body={"cluster_id": None, **request.body})


def _with(entry: PipelineEntry, **properties: int | bool | None) -> PipelineEntry:
    return entry.changed(msgspec.structs.replace(entry.pipeline, **properties))


@contextmanager
def _validated() -> Iterator[None]:
    """Convert `InvalidPipeline` to a response with status 422."""
    try:
        yield
    except InvalidPipeline as error:
        raise error_responses.invalid(error.problems) from None
