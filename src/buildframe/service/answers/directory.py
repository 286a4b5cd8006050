"""The operations on members and on the pipelines of teams."""

from __future__ import annotations

import msgspec

from buildframe.service import problems
from buildframe.service.answers import finding
from buildframe.service.answers.exchange import Answer, Operations, Request, refuse_viewers
from buildframe.service.data import stamps
from buildframe.service.data.bodies import Body
from buildframe.service.data.database import Data
from buildframe.service.data.teams import TeamPipeline, Teams
from buildframe.service.problems import Refused


class Directory:
    """Answers who belongs to an organization, and which pipelines its teams have."""

    def __init__(self, data: Data) -> None:
        self._data, self._teams = data, Teams(data)
        self.of: Operations = {
            "list_members": self._list_members,
            "get_member": self._get_member,
            "list_team_pipelines": self._list,
            "get_team_pipeline": self._get,
            "create_team_pipeline": self._create,
            "update_team_pipeline": self._update,
            "delete_team_pipeline": self._delete,
            "delete_team_pipeline_named": self._delete_named,
        }

    # --- members ---

    def _members(self, request: Request) -> list[Body]:
        """The people of an organization, of whom the first is its administrator."""
        organization = finding.organization(self._data, request.path["org"])
        return [
            {
                "id": self._data.bodies.user_id(organization, person),
                "name": person.name,
                "email": person.email,
                "role": "member" if place else "admin",
            }
            for place, person in enumerate(organization.people)
        ]

    def _list_members(self, request: Request) -> Answer:
        members, first = self._members(request), request.page.offset
        return Answer(msgspec.json.encode(members[first : first + request.page.size]), len(members))

    def _get_member(self, request: Request) -> Answer:
        for member in self._members(request):
            if member["id"] == request.path["user"].lower():
                return Answer(msgspec.json.encode(member))
        raise problems.not_found("user")

    # --- pipelines of teams ---

    def _list(self, request: Request) -> Answer:
        team = self._teams.find(request.path["org"], request.path["team"])
        found, total = self._teams.pipelines(team, request.page)
        return Answer(msgspec.json.encode([self._body(has) for has in found]), total)

    def _get(self, request: Request) -> Answer:
        return self._answer(self._has(request))

    def _create(self, request: Request) -> Answer:
        team = self._teams.find(request.path["org"], request.path["team"])
        refuse_viewers(request.access)
        asked = request.properties(_misfit)
        return self._answer(self._teams.give(team, asked["pipeline_id"], asked["access_level"]))

    def _update(self, request: Request) -> Answer:
        has = self._editable(request)
        return self._answer(self._teams.change(has, request.properties(_misfit)["access_level"]))

    def _delete(self, request: Request) -> Answer:
        self._teams.take(self._editable(request))
        return Answer()

    def _delete_named(self, request: Request) -> Answer:
        team = self._teams.find(request.path["org"], request.path["team"])
        refuse_viewers(request.access)
        named = request.body.get("pipeline_id", dict(request.query).get("pipeline_id"))
        if not isinstance(named, str):
            raise Refused(422, "Team pipeline could not be deleted. Say which one by pipeline_id.")
        self._teams.take(self._teams.get(team, named))
        return Answer()

    def _editable(self, request: Request) -> TeamPipeline:
        """The team pipeline that a request's path names, if the user may edit it."""
        has = self._has(request)
        refuse_viewers(request.access)
        return has

    def _has(self, request: Request) -> TeamPipeline:
        team = self._teams.find(request.path["org"], request.path["team"])
        return self._teams.get(team, request.path["pipeline_id"])

    def _answer(self, has: TeamPipeline) -> Answer:
        return Answer(msgspec.json.encode(self._body(has)))

    def _body(self, has: TeamPipeline) -> Body:
        bodies, line = self._data.bodies, self._data.lines[has.line]
        return {
            "pipeline_id": bodies.pipeline_id(line),
            "access_level": has.level,
            "pipeline_url": bodies.pipeline_url(line),
            "created_at": stamps.modern(has.created),
        }


def _misfit(wrong: list[tuple[str, str]]) -> Refused:
    return Refused(422, "Validation failed: " + "; ".join(f"{field} {problem}" for field, problem in wrong))
