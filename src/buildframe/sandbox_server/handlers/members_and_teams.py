"""Handlers of members and of team pipelines."""

from __future__ import annotations

from buildframe import spec
from buildframe.sandbox_server.db.serializers import JsonObject, format_time
from buildframe.sandbox_server.error_responses import HttpError, get_first_or_404
from buildframe.sandbox_server.handlers import lookup
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles, refuse_viewers
from buildframe.sandbox_server.handlers.routes import delete_team_pipeline_named
from buildframe.sandbox_server.world.teams import TeamGrant, TeamRecord


class TeamHandlers(HandlerGroup):
    """Handles the operations on members and team pipelines."""

    def _members(self, request: ApiRequest) -> list[JsonObject]:
        """Serialize the members of an organization. The first is its administrator."""
        organization = lookup.find_organization(self._db, request.path)
        return [
            {
                "id": self._db.serializer.find_user(organization, place).id,
                "name": person.name,
                "email": person.email,
                "role": "member" if place else "admin",
            }
            for place, person in enumerate(organization.people)
        ]

    @handles(spec.list_members)
    def _list_members(self, request: ApiRequest) -> ApiResponse:
        members = self._members(request)
        return ApiResponse(request.page.slice(members), len(members))

    @handles(spec.get_member)
    def _get_member(self, request: ApiRequest) -> ApiResponse:
        id = request.path["user"].lower()
        return ApiResponse(get_first_or_404((each for each in self._members(request) if each["id"] == id), "user"))

    @handles(spec.list_team_pipelines)
    def _list(self, request: ApiRequest) -> ApiResponse:
        grants = self._teams.list_grants("team", self._team(request).id)
        return ApiResponse([self._body(grant) for grant in request.page.slice(grants)], len(grants))

    @handles(spec.get_team_pipeline)
    def _get(self, request: ApiRequest) -> ApiResponse:
        return ApiResponse(self._body(self._grant(request)))

    @handles(spec.create_team_pipeline)
    def _create(self, request: ApiRequest) -> ApiResponse:
        team = self._team(request)
        refuse_viewers(request.access)
        properties = request.properties(_validation_failed)
        return ApiResponse(self._body(self._teams.grant(team, properties["pipeline_id"], properties["access_level"])))

    @handles(spec.update_team_pipeline)
    def _update(self, request: ApiRequest) -> ApiResponse:
        grant = self._editable(request)
        level = request.properties(_validation_failed)["access_level"]
        return ApiResponse(self._body(self._teams.change_level(grant, level)))

    @handles(spec.delete_team_pipeline)
    def _delete(self, request: ApiRequest) -> ApiResponse:
        self._teams.revoke(self._editable(request))
        return ApiResponse()

    @handles(delete_team_pipeline_named)
    def _delete_named(self, request: ApiRequest) -> ApiResponse:
        team = self._team(request)
        refuse_viewers(request.access)
        named = request.body.get("pipeline_id", dict(request.query).get("pipeline_id"))
        if not isinstance(named, str):
            raise HttpError(422, "Team pipeline could not be deleted. Pass pipeline_id.")
        self._teams.revoke(self._teams.get_grant(team, named))
        return ApiResponse()

    def _editable(self, request: ApiRequest) -> TeamGrant:
        """Return the grant in the path of a request, if the user can edit it."""
        grant = self._grant(request)
        refuse_viewers(request.access)
        return grant

    def _team(self, request: ApiRequest) -> TeamRecord:
        return self._teams.get_team(request.path["org"], request.path["team"])

    def _grant(self, request: ApiRequest) -> TeamGrant:
        return self._teams.get_grant(self._team(request), request.path["pipeline_id"])

    def _body(self, grant: TeamGrant) -> JsonObject:
        bodies, entry = self._db.serializer, self._db.pipelines[grant.pipeline_key]
        return {
            "pipeline_id": bodies.pipeline_id(entry),
            "access_level": grant.level,
            "pipeline_url": bodies.pipeline_url(entry),
            "created_at": format_time(grant.created),
        }


def _validation_failed(wrong: list[tuple[str, str]]) -> HttpError:
    return HttpError(422, "Validation failed: " + "; ".join(f"{field} {problem}" for field, problem in wrong))
