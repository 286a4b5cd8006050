"""Teams, and the pipelines that they have: the rules and the data behind REST and GraphQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from buildframe.service import problems
from buildframe.service.problems import Refused
from buildframe.service.world.chance import Chance
from buildframe.service.world.lines import Line, first_lines
from buildframe.service.world.model import DAY, Organization, World
from buildframe.service.world.roster import SQUADS, Squad

if TYPE_CHECKING:
    from buildframe.service.data.database import Data
    from buildframe.service.paging import Page

MANAGES = "manage_build_and_read"

_AGE_OF_TEAMS = 700 * DAY
_AGE_OF_LEVELS = 90 * DAY
_KEPT = "The last team that manages a pipeline keeps it while other teams have it."


class Team(NamedTuple):
    """A team as it is stored; `created` in microseconds."""

    id: str
    organization: str
    name: str
    description: str
    created: int


class TeamPipeline(NamedTuple):
    """What a team may do at the pipeline of the line's key; `created` in microseconds."""

    id: str
    team: str
    line: str
    level: str
    created: int


def first_teams(world: World) -> tuple[list[Team], list[TeamPipeline]]:
    """The teams that a world begins with, and their pipelines."""
    chance, lines = Chance(world.seed), first_lines(world)
    squads = [
        (_team(world, chance, organization, squad), squad)
        for organization in world.organizations
        for squad in SQUADS.get(organization.slug, ())
    ]
    return [team for team, _ in squads], [has for team, squad in squads for has in _has(chance, team, squad, lines)]


def team_id(chance: Chance, organization: str, name: str) -> str:
    """UUID of one of the first teams."""
    return chance.uuid("team", organization, name)


def _team(world: World, chance: Chance, organization: Organization, squad: Squad) -> Team:
    id = team_id(chance, organization.slug, squad.name)
    created = world.start - _AGE_OF_TEAMS - int(chance.number("team", id, "created") * _AGE_OF_TEAMS)
    return Team(id, organization.slug, squad.name, squad.description, created)


def _has(chance: Chance, team: Team, squad: Squad, lines: Sequence[Line]) -> Iterator[TeamPipeline]:
    for line in lines:
        level = squad.levels.get(line.pipeline.slug, squad.levels.get("*"))
        if level is not None and line.organization.slug == team.organization:
            age = int(chance.number("team pipeline", team.id, line.key, "age") * _AGE_OF_LEVELS)
            created = team.created + _AGE_OF_TEAMS - age
            yield TeamPipeline(
                chance.uuid("team pipeline", team.id, line.key, created), team.id, line.key, level, created
            )


class Teams:
    """Reads and changes the teams of the data. Whoever changes holds the data's lock throughout."""

    def __init__(self, data: Data) -> None:
        self._data = data

    # --- teams ---

    def of(self, organization: str) -> list[Team]:
        """The teams of an organization, in order."""
        return [
            Team(*row)
            for row in self._data.rows("SELECT * FROM teams WHERE organization = ? ORDER BY rowid", (organization,))
        ]

    def find(self, organization: str, id: str) -> Team:
        """A team by its UUID; 404 where the organization has none such."""
        found = [team for team in self.of(organization) if team.id == id.lower()]
        if not found:
            raise problems.not_found("team")
        return found[0]

    # --- their pipelines ---

    def pipelines(self, team: Team, page: Page) -> tuple[list[TeamPipeline], int]:
        """A page of the pipelines of a team, in the order in which it got them, and how many it has."""
        ((total,),) = self._data.rows("SELECT count(*) FROM team_pipelines WHERE team = ?", (team.id,))
        sql = "SELECT * FROM team_pipelines WHERE team = ? ORDER BY rowid LIMIT ? OFFSET ?"
        return [TeamPipeline(*row) for row in self._data.rows(sql, (team.id, page.size, page.offset))], total

    def at(self, line: Line) -> list[TeamPipeline]:
        """Which teams have a pipeline, in the order in which they got it."""
        sql = "SELECT * FROM team_pipelines WHERE pipeline = ? ORDER BY rowid"
        return [TeamPipeline(*row) for row in self._data.rows(sql, (line.key,))]

    def line(self, organization: str, pipeline_id: str) -> Line | None:
        """The line of a pipeline's UUID."""
        lines = self._data.lines.of(organization)
        return next((line for line in lines if self._data.bodies.pipeline_id(line) == pipeline_id.lower()), None)

    def get(self, team: Team, pipeline_id: str) -> TeamPipeline:
        """What a team may do at a pipeline; 404 where it does not have it."""
        line = self.line(team.organization, pipeline_id)
        found = [has for has in self.at(line) if has.team == team.id] if line is not None else []
        if not found:
            raise problems.not_found("team pipeline")
        return found[0]

    def by_id(self, id: str) -> TeamPipeline | None:
        """What a team may do somewhere, by its own UUID."""
        found = self._data.rows("SELECT * FROM team_pipelines WHERE id = ?", (id,))
        return TeamPipeline(*found[0]) if found else None

    # --- changing them ---

    def give(self, team: Team, pipeline_id: str, level: str) -> TeamPipeline:
        """Give a team a pipeline of its organization; 422 where there is none such, or the team has it."""
        line = self.line(team.organization, pipeline_id)
        if line is None:
            raise _invalid("Pipeline must exist")
        if any(has.team == team.id for has in self.at(line)):
            raise _invalid("Pipeline has already been added to this team")
        return self._give(team.id, line, level)

    def _give(self, team: str, line: Line, level: str) -> TeamPipeline:
        now = self._data.load_now()
        id = self._data.bodies.chance.uuid("team pipeline", team, line.key, now)
        has = TeamPipeline(id, team, line.key, level, now)
        self._data.write("INSERT INTO team_pipelines VALUES (?, ?, ?, ?, ?)", has)
        return has

    def change(self, has: TeamPipeline, level: str) -> TeamPipeline:
        """Change what a team may do at a pipeline; 422 where nobody of those who have it could manage it any more."""
        if level != MANAGES and self._is_last_manager(has):
            raise _invalid(_KEPT)
        self._data.write("UPDATE team_pipelines SET level = ? WHERE id = ?", (level, has.id))
        return has._replace(level=level)

    def take(self, has: TeamPipeline) -> None:
        """Take a pipeline from a team; 422 as for `change`."""
        if self._is_last_manager(has):
            raise Refused(422, f"Team pipeline could not be deleted. {_KEPT}")
        self._data.write("DELETE FROM team_pipelines WHERE id = ?", (has.id,))

    def _is_last_manager(self, has: TeamPipeline) -> bool:
        others = [other.level for other in self.at(self._data.lines[has.line]) if other.id != has.id]
        return has.level == MANAGES and bool(others) and MANAGES not in others

    # --- teams of a new pipeline ---

    def asked(self, organization: str, teams: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
        """The level of each team that a new pipeline is to have, by UUID; 422 for one that is not there.

        Teams without a level may manage it.
        """
        levels = dict(teams) if isinstance(teams, Mapping) else dict.fromkeys(teams, MANAGES)
        known = {team.id for team in self.of(organization)}
        unknown = [id for id in levels if id.lower() not in known]
        if unknown:
            raise problems.invalid(("teams", f"There is no team {id!r} in this organization") for id in unknown)
        return {id.lower(): level for id, level in levels.items()}

    def give_new(self, line: Line, levels: Mapping[str, str]) -> None:
        """Give a new pipeline to teams (see `asked`)."""
        for team, level in levels.items():
            self._give(team, line, level)


def _invalid(reason: str) -> Refused:
    return Refused(422, f"Validation failed: {reason}")
