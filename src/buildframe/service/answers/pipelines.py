"""The operations on pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from buildframe.service import problems
from buildframe.service.answers import finding
from buildframe.service.answers.exchange import Answer, Operations, Request, list_of, refuse_viewers
from buildframe.service.answers.told_pipelines import Pipelines, configuration
from buildframe.service.data.database import Data
from buildframe.service.data.teams import Teams
from buildframe.service.life.engine import Engine
from buildframe.service.problems import Refused
from buildframe.service.texts.pipeline_rules import Around, Invalid, changed, new_pipeline
from buildframe.service.world.lines import Line
from buildframe.service.world.model import Organization
from buildframe.service.world.records import cluster_id, template_uuid
from buildframe.spec.pipelines import SELF_HOSTED

_NO_WEBHOOK = "Auto-creating webhooks is not supported for your repository."
_WEBHOOK_EXISTS = "Webhooks could not be created for your repository."
_NOT_ARCHIVED = "Pipeline could not be archived."
_NOT_UNARCHIVED = "Pipeline could not be unarchived."


class PipelineAnswers:
    """Answers the operations on pipelines."""

    def __init__(self, data: Data, engine: Engine, pipelines: Pipelines) -> None:
        self._data, self._engine, self._pipelines = data, engine, pipelines
        self._lines, self._teams = data.lines, Teams(data)
        self.of: Operations = {
            "list_pipelines": self._list,
            "get_pipeline": self._get,
            "create_pipeline": self._create,
            "update_pipeline": self._update,
            "archive_pipeline": self._archive,
            "unarchive_pipeline": self._unarchive,
            "delete_pipeline": self._delete,
            "add_webhook": self._add_webhook,
        }

    def _list(self, request: Request) -> Answer:
        lines = self._lines.of(request.path["org"])
        page = lines[request.page.offset : request.page.offset + request.page.size]
        return Answer(list_of([self._pipelines.whole(line, request.access) for line in page]), len(lines))

    def _get(self, request: Request) -> Answer:
        return self._told(request, self._line(request))

    def _create(self, request: Request) -> Answer:
        organization = finding.organization(self._data, request.path["org"])
        refuse_viewers(request.access)
        properties = _in_its_cluster(request, organization).properties()
        with _validated():
            around, now = self._around(organization), self._data.load_now()
            pipeline = new_pipeline(properties, around, now, request.access.user)
        teams = self._teams.asked(organization.slug, properties.get("teams", ()))
        with self._lines.changing(), self._data.writing():
            key = self._data.bodies.chance.uuid("pipeline", self._data.next_pipeline())
            line = Line(key, organization, pipeline)
            self._data.put_pipeline(line)
            self._teams.give_new(line, teams)
        return Answer(self._pipelines.created(line, request.access))

    def _update(self, request: Request) -> Answer:
        line = self._editable(request)
        if "teams" in request.body:
            raise problems.invalid([("teams", "are changed through the GraphQL API only")])
        properties = request.properties()
        with _validated():
            text, around = configuration(line.pipeline), self._around(line.organization, line)
            pipeline = changed(line.pipeline, text, properties, around)
        return self._put(request, line.changed(pipeline))

    def _around(self, organization: Organization, but: Line | None = None) -> Around:
        slug = organization.slug
        others = [line.pipeline for line in self._lines.of(slug) if but is None or line.key != but.key]
        chance = self._data.bodies.chance
        return Around(
            names=frozenset(pipeline.name for pipeline in others),
            slugs=frozenset(pipeline.slug for pipeline in others),
            clusters=frozenset({cluster_id(chance, slug)} if organization.has_cluster else ()),
            templates=frozenset({template_uuid(chance, slug)}),
        )

    def _archive(self, request: Request) -> Answer:
        line = self._editable(request)
        if line.pipeline.archived_at is not None:
            raise Refused(422, _NOT_ARCHIVED)
        return self._put(request, _with(line, archived_at=self._data.load_now()))

    def _unarchive(self, request: Request) -> Answer:
        line = self._editable(request)
        if line.pipeline.archived_at is None:
            raise Refused(422, _NOT_UNARCHIVED)
        return self._put(request, _with(line, archived_at=None))

    def _delete(self, request: Request) -> Answer:
        self._engine.drop(self._editable(request))
        return Answer()

    def _add_webhook(self, request: Request) -> Answer:
        line = self._editable(request)
        if line.pipeline.provider == SELF_HOSTED:
            raise Refused(422, _NO_WEBHOOK)
        if line.pipeline.has_webhook or line.pipeline.archived_at is not None:
            raise Refused(422, _WEBHOOK_EXISTS)
        return self._put(request, _with(line, has_webhook=True))

    # --- parts of these ---

    def _line(self, request: Request) -> Line:
        return finding.line(self._data, request.path["org"], request.path["pipeline"])

    def _editable(self, request: Request) -> Line:
        """The pipeline that a request's path names, if the user may edit it."""
        line = self._line(request)
        refuse_viewers(request.access)
        return line

    def _put(self, request: Request, line: Line) -> Answer:
        self._data.put_pipeline(line)
        return self._told(request, line)

    def _told(self, request: Request, line: Line) -> Answer:
        return Answer(self._pipelines.whole(line, request.access))


def _in_its_cluster(request: Request, organization: Organization) -> Request:
    """Where there are no clusters, a new pipeline need not say that it is in none."""
    if organization.has_cluster:
        return request
    return replace(request, body={"cluster_id": None, **request.body})


def _with(line: Line, **properties: int | bool | None) -> Line:
    return line.changed(msgspec.structs.replace(line.pipeline, **properties))


@contextmanager
def _validated() -> Iterator[None]:
    """What makes no pipeline is answered with 422 and all that is wrong."""
    try:
        yield
    except Invalid as why:
        raise problems.invalid(why.wrong) from None
